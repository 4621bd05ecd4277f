// Lets any thread end what another one is blocked in.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

namespace hocket::internal {

class StopRequest {
 public:
  /// Runs what the one who blocks has named for it, now or as soon as it names it. Stays.
  void stop() {
    std::lock_guard lock(mutex_);
    stopped_.store(true);
    if (how_) how_();
  }
  bool stopped() const { return stopped_.load(); }

  /// While it lives, `how` ends what its owner blocks in: called by the thread that stops, or here
  /// where that was before. It must not block. Not running any more when the scope has ended.
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
