// Calls on one communicator run in the order in which they were made, whatever streams they were
// given: each takes a ticket when it is made and runs when its ticket is served. A call on the NULL
// stream runs at once, without a ticket, if no other call is pending. The ticket also entitles a
// thread to use the engine, so that one thread at a time uses it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/assert.h"

namespace hocket::internal {

class CallOrder {
 public:
  using Ticket = std::uint64_t;

  /// A thread enters a call of this communicator. False if another thread is inside one.
  bool enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void exit() { busy_.store(false, std::memory_order_release); }
  /// The next Call::number. Only the thread that has entered calls it.
  std::uint64_t next_number() { return ++numbered_; }

  Ticket take_ticket() { return issued_.fetch_add(1, std::memory_order_relaxed); }
  void await_ticket(Ticket ticket) {
    for (;;) {
      const std::uint64_t served = served_.load(std::memory_order_acquire);
      if (served == ticket) return;
      served_.wait(served, std::memory_order_acquire);
    }
  }
  void serve_next() {
    HOCKET_ASSERT(pending(), "a ticket is served that was taken");
    served_.fetch_add(1, std::memory_order_release);
    served_.notify_all();
  }
  bool pending() const {
    return issued_.load(std::memory_order_relaxed) != served_.load(std::memory_order_acquire);
  }
  /// Blocks until all calls made so far have run.
  void flush() { await_ticket(issued_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<bool> busy_{false};
  std::uint64_t numbered_ = 0;  // calls of the user
  std::atomic<std::uint64_t> issued_{0}, served_{0};
};

}  // namespace hocket::internal
