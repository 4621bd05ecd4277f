// How a thread waits for its peers: it polls, then yields to other threads between polls, then
// sleeps on the doorbell of the rank. How long each phase lasts depends on whether the thread has a
// core to itself.
//
// The rule. A thread with a core of its own polls for a long time: no other thread needs the core,
// and a peer that is ready answers within a microsecond. A thread that shares its core yields it
// soon. A thread counts as sharing its core (Oversubscription) if
//   - the ranks of the job on this machine outnumber the cores that they may run on, whatever
//     transport joins them (topology/machine.h: ranks_per_core). That is known when the
//     communicator is made and holds for its life. Then the thread yields after every poll that
//     moved nothing: the peer that it waits for may need this core. Or
//   - the thread had to wait for a core for a tenth of the time between two looks at the kernel's
//     count. Only this count shows the load of other containers, of processes outside the job and
//     of the application's own threads. The thread looks again and again as long as the
//     communicator exists. After a wait of a tenth of the time, the core counts as shared for a
//     second, and longer if that happens again. Then the thread yields after some polls that moved
//     nothing; after each of them if its polls make system calls, as over tcp.
// The kernel counts that time per thread: the second number of /proc/thread-self/schedstat, in
// nanoseconds. A thread reads it only when it has polled without success and is about to yield or
// to sleep, at most once in 10 ms. Each rank decides for itself: the ranks of one operation may
// wait in different ways.
//
// The worker of a stream for which no thread waits sleeps after a few polls: the threads that put
// the operations on the stream compute meanwhile, and every poll takes the core from one of them.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/waiters.h"

namespace hocket::internal {

/// What a thread does after a poll that moved nothing.
enum class WaitPhase { spin, yield, sleep };

struct WaitPolicy {
  // Polls for a message that is all that the thread waits for, before all others: a peer that is
  // ready answers within them.
  unsigned polls_alone = 64;
  // Polls in a row that move nothing, before anything else: no clock, no lock, no system call.
  unsigned polls = 1000;
  unsigned polls_by_calls = 1000;  // the same, where each poll makes system calls, as over tcp
  Nanos spin = 100'000;            // then polls that read the clock
  Nanos yield = 1'000'000;         // then polls that yield to other threads; then sleep

  /// What follows these polls. quiet_for: nanoseconds since then, in which nothing moved.
  WaitPhase phase(Nanos quiet_for) const {
    if (quiet_for < spin) return WaitPhase::spin;
    return quiet_for < yield ? WaitPhase::yield : WaitPhase::sleep;
  }
};

/// Who waits for the calls that the calling thread drives. Set by the worker of a stream; null: the
/// calls are its own.
extern thread_local Waiters* driven_for;

/// Whether the threads that drive a communicator share their core. Used by one thread at a time.
class Oversubscription {
 public:
  explicit Oversubscription(double ranks_per_core) : by_ranks_(ranks_per_core > 1) {}

  bool shares_core() const { return by_ranks_ || shared_until_.has_value(); }
  /// Of the calling thread, now.
  const WaitPolicy& policy() const;

  /// Whether the run delay should be read now.
  bool is_due(Nanos now) const {
    return !by_ranks_ && (!last_ || now - last_->at >= between_looks);
  }
  /// Takes the run delay: the total time that `thread`, the calling thread, has waited for a core;
  /// empty: unknown.
  void look(std::thread::id thread, Nanos now, std::optional<Nanos> run_delay);

 private:
  static constexpr Nanos between_looks = 10 * nanos_per_ms;
  struct Look {
    std::thread::id thread;
    Nanos at = 0;
    Nanos run_delay = 0;
  };
  bool by_ranks_;
  std::optional<Look> last_;
  std::optional<Nanos> shared_until_;
};

/// The time that the calling thread has waited for a core so far. Empty if the kernel does not
/// report it.
std::optional<Nanos> run_delay();

/// An engine to drive, and the doorbells that wake the thread that waits for it.
struct Sleeper {
  Engine* engine = nullptr;
  const Board* board = nullptr;
  int event_fd = -1;  // readable when a peer has rung this rank while it sleeps in poll
};

/// Drives all engines until each is idle or has failed (Engine::status()), and reports their
/// failures. stop: not null if threads share the engines (handover.h); then drive() also ends when
/// *stop is set, and when the work of a thread has ended.
void drive(std::span<const Sleeper> sleepers, Oversubscription& oversubscription,
           const std::atomic<bool>* stop = nullptr);

}  // namespace hocket::internal
