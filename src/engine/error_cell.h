// The error of one communicator: the first error that any thread finds, or its abort. The user's
// handle owns the cell, from before the communicator is made until the handle is destroyed.
//
// Other errors are kept elsewhere. The last error of each thread (api/handle.cc) may also be that
// of a call without a communicator. Engine::status() is the error that has ended the operations: a
// fault that the monitor thread receives is in the cell at once, while the engine may still end a
// call that all ranks have reached. HostStream and Event keep the errors of their tasks, which may
// use several communicators. A transport keeps the error that has ended a link, for transfers that
// are posted later.
#pragma once

#include <atomic>
#include <mutex>

#include "base/status.h"

namespace hocket::internal {

/// Any thread may call any function.
class ErrorCell {
 public:
  /// Keeps the first error. OK changes nothing.
  void set(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (status.ok() || !error_.ok()) return;
    error_ = status;
    is_set_.store(true, std::memory_order_release);
  }
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  Status get() const {
    if (!is_set()) return {};
    const std::lock_guard lock(mutex_);
    return error_;
  }

  /// Returns false if the communicator was aborted before.
  bool abort() { return !aborted_.exchange(true); }
  bool aborted() const { return aborted_.load(); }

  // ---- What the user is told
  /// To be called when the API function `function`, a static string, returns `status` to the user:
  /// the cell's error, or the error of a call that changed nothing.
  void note_returned(const char* function, const Status& status) {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) {
      refused_ = status.returned_by(function);
    } else if (function_ == nullptr) {
      function_ = function;
    }
  }
  /// The cell's error, under the name of the function that returned it first. If there is none: the
  /// error of the last call that failed and changed nothing.
  Status told() const {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) return refused_;
    return function_ == nullptr ? error_ : error_.returned_by(function_);
  }
  /// Frees the texts when the communicator is destroyed.
  void clear() {
    const std::lock_guard lock(mutex_);
    error_ = refused_ = {};
  }

 private:
  mutable std::mutex mutex_;
  // Under mutex_:
  Status error_, refused_;
  const char* function_ = nullptr;  // that returned error_ first
  std::atomic<bool> is_set_{false};
  std::atomic<bool> aborted_{false};
};

}  // namespace hocket::internal
