// Lets a thread end a blocking call of another thread.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

namespace hocket::internal {

class StopRequest {
 public:
  /// Requests a stop; it cannot be undone. If a Scope lives, its callback runs now; otherwise the
  /// callback of the next Scope runs as soon as that Scope is made.
  void stop() {
    std::lock_guard lock(mutex_);
    stopped_.store(true);
    if (how_) how_();
  }
  bool stopped() const { return stopped_.load(); }

  /// While the Scope lives, stop() calls `how`, which must end the blocking call of the Scope's
  /// owner and must not block itself. If stop() came before, the constructor calls `how`. The
  /// destructor waits for a running `how`.
  class Scope {
   public:
    Scope(StopRequest* request, std::function<void()> how) : request_(request) {
      if (request_ == nullptr) return;
      std::lock_guard lock(request_->mutex_);
      if (request_->stopped()) how();
      request_->how_ = std::move(how);
    }
    ~Scope() {
      if (request_ == nullptr) return;
      std::lock_guard lock(request_->mutex_);
      request_->how_ = nullptr;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StopRequest* request_;
  };

 private:
  std::mutex mutex_;
  std::function<void()> how_;  // under mutex_
  std::atomic<bool> stopped_{false};
};

}  // namespace hocket::internal
