// Calls on one communicator run in the order in which they were made, whatever streams they were
// given: each takes a ticket when it is made and runs when its ticket is served. One on the NULL
// stream with nothing pending runs at once, without a ticket. Tickets also hand the engine from
// thread to thread, so that one thread at a time uses it.
#pragma once

#include <atomic>
#include <cstdint>

namespace hocket::internal {

class CallOrder {
 public:
  using Ticket = std::uint64_t;

  /// Takes the caller's side: false where another thread is inside a call of this communicator.
  bool enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void exit() { busy_.store(false, std::memory_order_release); }
  /// For Call::number, by the thread that has entered.
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
