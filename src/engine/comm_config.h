#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/plan/plan_file.h"

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
  bool tls = false;  // TCP connections use TLS
  bool use_tcp = true;
  std::vector<int> nodes;  // HOCKET_NODES
  std::string interface;
  std::string algorithm;
  int record_operations = 64;  // how many the record of operations keeps; 0: none
  std::string dump_folder;     // of dumps of the record; empty: the log
  int dump_signal = 0;         // a signal that asks for a dump; 0: none
  std::string trace_folder;    // of traces; empty: no tracing
  std::string plan_files;      // of the user's plans: their paths, with colons between them
  std::shared_ptr<const std::vector<PlanFile>> plans;  // read from these files; null: none
};

}  // namespace hocket::internal
