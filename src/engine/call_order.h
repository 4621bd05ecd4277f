// The order of the calls on one communicator, whatever streams they were given. A call takes a
// ticket when it is made, and begins when the ticket is next. Collectives and messages have tickets
// of their own: a collective is next when the collective before it has ended, a message when the
// message before it has begun. So messages and collectives do not wait for each other. A call on
// the NULL stream takes no ticket if all calls before it have ended: its thread is then the only
// thread that uses the engine.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "base/biased_lock.h"

namespace hocket::internal {

class CallOrder {
 public:
  enum class Kind : std::uint8_t { collectives, messages };
  struct Ticket {
    Kind kind = Kind::collectives;
    std::uint64_t number = 0;
  };

  /// To be taken when a thread begins a call on this communicator; a thread that does not get it
  /// finds another thread inside a call.
  BiasedLock& caller() { return caller_; }
  /// The next Call::number. Only the thread that has the lock calls it.
  std::uint64_t next_number() { return ++numbered_; }

  /// Only the thread that has the lock calls it.
  Ticket take_ticket(Kind kind) {
    unfinished_.fetch_add(1, std::memory_order_relaxed);
    return {kind, issued_[index(kind)]++};
  }
  /// The next three are called under Handovers::mutex (handover.h).
  bool is_next(Ticket ticket) const { return next_[index(ticket.kind)] == ticket.number; }
  /// To be called when the calls of a ticket that is next have been given to the engine.
  void begin(Ticket ticket) {
    if (ticket.kind == Kind::messages) pass(ticket);
  }
  /// To be called when these calls have ended.
  void end(Ticket ticket) {
    if (ticket.kind == Kind::collectives) pass(ticket);
  }
  /// To be called after end(). From then on the communicator may be destroyed.
  void finish() {
    unfinished_.fetch_sub(1, std::memory_order_release);
    unfinished_.notify_all();
  }
  /// True while calls with tickets have not ended.
  bool pending() const { return unfinished_.load(std::memory_order_acquire) != 0; }
  /// Blocks until all calls made so far have ended.
  void flush() {
    for (;;) {
      const std::uint64_t unfinished = unfinished_.load(std::memory_order_acquire);
      if (unfinished == 0) return;
      unfinished_.wait(unfinished, std::memory_order_acquire);
    }
  }

 private:
  static std::size_t index(Kind kind) { return static_cast<std::size_t>(kind); }
  void pass(Ticket ticket) {
    HOCKET_ASSERT(is_next(ticket), "tickets are passed in their order");
    ++next_[index(ticket.kind)];
  }

  BiasedLock caller_;
  std::uint64_t numbered_ = 0;                // calls of the user
  std::array<std::uint64_t, 2> issued_{};     // tickets taken, by kind
  std::array<std::uint64_t, 2> next_{};       // the ticket that is next, by kind
  std::atomic<std::uint64_t> unfinished_{0};  // tickets taken and not finished
};

}  // namespace hocket::internal
