#pragma once

#include <cstdint>
#include <string>

namespace hocket::internal {

/// The configuration of a communicator, from hocketConfig_t and the environment.
struct CommConfig {
  std::string name;
  std::int64_t deadline_ms = 600'000;
  std::int64_t join_deadline_ms = 600'000;
  std::int64_t silence_ms = 10'000;
  bool deterministic = false;
  bool blocking = true;
  bool checksum = false;
  bool use_shm = true;
  bool use_tcp = true;
  std::string interface;
  std::string algorithm;
};

}  // namespace hocket::internal
