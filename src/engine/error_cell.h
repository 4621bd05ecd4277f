// The error of one communicator: the first that any thread finds, or its abort.
#pragma once

#include <atomic>
#include <mutex>

#include "base/status.h"

namespace hocket::internal {

/// Any thread may call anything.
class ErrorCell {
 public:
  /// Keeps the first error. OK changes nothing.
  void set(const Status& status) {
    std::lock_guard lock(mutex_);
    if (status.ok() || !error_.ok()) return;
    error_ = status;
    is_set_.store(true, std::memory_order_release);
  }
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  Status get() const {
    if (!is_set()) return {};
    std::lock_guard lock(mutex_);
    return error_;
  }

  /// False where the communicator was aborted before.
  bool abort() { return !aborted_.exchange(true); }
  bool aborted() const { return aborted_.load(); }

 private:
  mutable std::mutex mutex_;
  Status error_;  // under mutex_
  std::atomic<bool> is_set_{false};
  std::atomic<bool> aborted_{false};
};

}  // namespace hocket::internal
