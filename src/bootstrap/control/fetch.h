// A request for a descriptor of a local peer.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "bootstrap/types.h"

namespace hocket::internal {

/// A request for a descriptor of a local peer. The monitor thread finishes it; any thread may call
/// done(), and one thread may take the descriptor.
class Fetch {
 public:
  /// ended: called once, by the monitor thread, when done() has become true; must not block.
  Fetch(int peer, FaultScope scope, DescriptorName name, std::function<void(const Fetch&)> ended)
      : peer(peer), scope(std::move(scope)), name(name), ended_(std::move(ended)) {}
  bool done() const { return done_.load(std::memory_order_acquire); }
  /// After done(): returns the result; if it is OK, *fd receives the descriptor.
  Status take(UniqueFd* fd);
  /// After done(), before take(): the descriptor; -1: none came.
  int fd() const { return fd_.get(); }
  void finish(const Status& status, UniqueFd fd);
  /// When disregard() returns, `ended` does not run and will not be called.
  void disregard();

  const int peer;
  const FaultScope scope;
  const DescriptorName name;

 private:
  std::mutex mutex_;
  std::function<void(const Fetch&)> ended_;  // under mutex_
  std::atomic<bool> done_{false};
  Status status_;  // before done_
  UniqueFd fd_;    // before done_
};

}  // namespace hocket::internal
