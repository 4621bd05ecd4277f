// The error that has ended an engine, and whether the host of the engine has been told of it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "engine/engine_host.h"

namespace hocket::internal {

class EngineError {
 public:
  bool is_set() const { return !status_.ok(); }
  /// OK: it is not set.
  const Status& status() const { return status_; }
  /// operation, tell_peers: as EngineHost::on_failure() has them.
  void set(const Status& status, std::uint64_t operation, bool tell_peers) {
    status_ = status;
    unreported_ = {operation, tell_peers};
  }
  bool is_unreported() const { return unreported_.has_value(); }
  /// Tells the host, which may block.
  void report(EngineHost& host) {
    const Unreported unreported = *unreported_;
    unreported_.reset();
    host.on_failure(status_, unreported.operation, unreported.tell_peers);
  }

 private:
  struct Unreported {
    std::uint64_t operation;
    bool tell_peers;
  };
  Status status_;
  std::optional<Unreported> unreported_;
};

}  // namespace hocket::internal
