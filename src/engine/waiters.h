// Whether a thread of the process waits for calls that the worker of a stream drives.
#pragma once

#include <atomic>

namespace hocket::internal {

/// Of one stream. Any thread.
class Waiters {
 public:
  /// A thread waits until the end of the scope.
  class Scope {
   public:
    explicit Scope(Waiters& waiters) : waiters_(waiters) {
      waiters_.threads_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Scope() { waiters_.threads_.fetch_sub(1, std::memory_order_relaxed); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Waiters& waiters_;
  };
  /// A thread has asked whether the calls have ended: it may ask again and again.
  void ask() { asked_.store(true, std::memory_order_relaxed); }
  /// True if a thread waits, or has asked since the last time.
  bool any() {
    return threads_.load(std::memory_order_relaxed) > 0 ||
           (asked_.load(std::memory_order_relaxed) &&
            asked_.exchange(false, std::memory_order_relaxed));
  }

 private:
  std::atomic<int> threads_{0};
  std::atomic<bool> asked_{false};
};

}  // namespace hocket::internal
