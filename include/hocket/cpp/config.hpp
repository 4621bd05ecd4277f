// How a communicator is made: its configuration, and the unique id of its job.
#pragma once

#include <chrono>
#include <climits>
#include <cstring>
#include <hocket/cpp/elements.hpp>
#include <hocket/cpp/error.hpp>
#include <optional>
#include <string>

namespace hocket {

/// hocketConfig_t, whose fields are explained in hocket.h. A field that is not set has its default.
///
///   hocket::Communicator::from_environment({.name = "training", .deadline = 30s})
struct Config {
  std::optional<bool> blocking{};
  std::string name{};
  std::optional<std::chrono::milliseconds> deadline{};
  std::optional<std::chrono::milliseconds> join_deadline{};
  std::optional<std::chrono::milliseconds> silence{};
  std::optional<bool> deterministic{};
  std::string interface_name{};

  /// The configuration for C calls; it points into this Config.
  [[nodiscard]] hocketConfig_t to_c() const {
    hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
    if (blocking) config.blocking = *blocking ? 1 : 0;
    if (!name.empty()) config.commName = name.c_str();
    if (deadline) config.deadline_ms = to_int("deadline", *deadline);
    if (join_deadline) config.join_deadline_ms = to_int("join_deadline", *join_deadline);
    if (silence) config.silence_ms = to_int("silence", *silence);
    if (deterministic) config.deterministic = *deterministic ? 1 : 0;
    if (!interface_name.empty()) config.interface_name = interface_name.c_str();
    return config;
  }

 private:
  static int to_int(const char* field, std::chrono::milliseconds time) {
    if (time.count() >= 0 && time.count() <= INT_MAX) return static_cast<int>(time.count());
    throw InvalidArgument("hocket::Config", std::string(field) + " is " +
                                                std::to_string(time.count()) +
                                                " ms: at least 0, at most 2147483647");
  }
};

/// The unique id of a job. One rank creates it and gives the bytes to the others by a way that
/// strangers cannot read, because every process that has the bytes can join.
class UniqueId {
 public:
  UniqueId(const hocketUniqueId& id) noexcept : id_(id) {}  // NOLINT: implicit by intention
  [[nodiscard]] static UniqueId create() {
    hocketUniqueId id;
    check(hocketGetUniqueId(&id), "hocketGetUniqueId");
    return id;
  }
  /// bytes: HOCKET_UNIQUE_ID_BYTES of them, a range of std::byte, char or the like.
  template <typename Range>
  [[nodiscard]] static UniqueId from_bytes(const Range& range) {
    const std::span<const std::byte> bytes = detail::bytes(range);
    hocketUniqueId id;
    if (bytes.size() != sizeof id.internal) {
      throw InvalidArgument("hocket::UniqueId::from_bytes",
                            "the range has " + std::to_string(bytes.size()) +
                                " bytes, a unique id has " + std::to_string(sizeof id.internal));
    }
    std::memcpy(id.internal, bytes.data(), bytes.size());
    return id;
  }
  /// Valid as long as this object.
  [[nodiscard]] std::span<const std::byte, HOCKET_UNIQUE_ID_BYTES> bytes() const noexcept {
    return std::as_bytes(std::span(id_.internal));
  }
  [[nodiscard]] const hocketUniqueId& get() const noexcept { return id_; }

 private:
  hocketUniqueId id_;
};

}  // namespace hocket
