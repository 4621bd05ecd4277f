// The error of one communicator: the first that any thread finds, or its abort. The handle that the
// user has owns the cell, from before the communicator is made until the handle is destroyed.
//
// Two errors more are kept elsewhere. The last error of each thread (api/handle.cc) belongs to the
// thread: it is also that of calls without a communicator. Engine::status() is what has ended the
// calls: a fault that the monitor thread has heard of is in the cell at once, while the engine may
// still end a call that all ranks have reached. HostStream and Event keep the error of their tasks,
// which may use several communicators. A transport remembers why a link has ended, for what is
// posted later.
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

  /// False where the communicator was aborted before.
  bool abort() { return !aborted_.exchange(true); }
  bool aborted() const { return aborted_.load(); }

  // ---- What the user is told
  /// The API function `function`, a static string, returns `status` to the user. It is the cell's
  /// error, or else that of a call which changed nothing.
  void note_returned(const char* function, const Status& status) {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) {
      refused_ = status.returned_by(function);
    } else if (function_ == nullptr) {
      function_ = function;
    }
  }
  /// The error, under the name of the function that returned it first. Without an error: that of
  /// the last call that changed nothing.
  Status told() const {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) return refused_;
    return function_ == nullptr ? error_ : error_.returned_by(function_);
  }
  /// Gives the texts back: the communicator is destroyed.
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
