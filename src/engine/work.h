// Calls that were given to an engine together, and their result.
#pragma once

#include <cstddef>

#include "base/assert.h"
#include "base/status.h"

namespace hocket::internal {

/// Used by the thread that drives the engine.
class Work {
 public:
  void begin(std::size_t calls) {
    begun_ = true;
    left_ = calls;
  }
  /// To be called when a call has ended without an error. Returns true if it was the last call.
  bool end_call() {
    HOCKET_ASSERT(left_ > 0, "each call ends once");
    return --left_ == 0;
  }
  /// To be called when the engine has ended before all calls have ended.
  void fail(const Status& status) {
    if (left_ == 0) return;
    left_ = 0;
    status_ = status;
  }
  bool has_ended() const { return begun_ && left_ == 0; }
  const Status& status() const { return status_; }

 private:
  bool begun_ = false;
  std::size_t left_ = 0;
  Status status_;
};

}  // namespace hocket::internal
