// How a thread waits for its peers: it polls, gives way to other threads between polls, and then
// sleeps on the rank's doorbell. How long each phase lasts depends on whether the thread has a core
// to itself.
//
// The rule. A thread with a core of its own polls for a long time: nobody else could use the core,
// and a peer in step answers within a microsecond. A thread that shares its core gives the core
// away after a few polls: the peer that it waits for may need this very core. A thread counts as
// sharing its core (Oversubscription) where
//   - the ranks of the job on this machine outnumber the cores that they may run on, whatever
//     transport joins them (topology/machine.h: crowd). That is known when the communicator is made
//     and holds for its life. Or
//   - the kernel let this thread wait for a core for a tenth of the time between two looks. Only
//     that shows the load of other containers, of processes outside the job and of the
//     application's own threads. It is looked at again for as long as the communicator lives: a
//     tenth makes the core shared for a second, a second without that gives it back.
// The kernel counts that time per thread: the second number of /proc/thread-self/schedstat, in
// nanoseconds. It is read only by a thread that has polled in vain already and is about to yield
// or to sleep, at most once in 10 ms. Each rank decides for itself: the ranks of one operation may
// wait in different ways.
#pragma once

#include <optional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "engine/engine.h"

namespace hocket::internal {

/// What follows a poll that moved nothing.
enum class WaitPhase { poll, spin, yield, sleep };

struct WaitPolicy {
  unsigned polls = 1000;    // before anything else: no clock, no lock, no system call
  Nanos spin = 100'000;     // then polls with an eye on the clock
  Nanos yield = 1'000'000;  // then polls that give way to other threads; then sleep

  /// quiet: polls in a row that moved nothing. quiet_for: nanoseconds since they exceeded `polls`.
  WaitPhase phase(unsigned quiet, Nanos quiet_for) const {
    if (quiet <= polls) return WaitPhase::poll;
    if (quiet_for < spin) return WaitPhase::spin;
    return quiet_for < yield ? WaitPhase::yield : WaitPhase::sleep;
  }
};

/// Whether the threads that drive a communicator share their core. Used by one thread at a time.
class Oversubscription {
 public:
  explicit Oversubscription(double ranks_per_core) : by_ranks_(ranks_per_core > 1) {}

  bool shares_core() const { return by_ranks_ || shared_until_.has_value(); }
  const WaitPolicy& policy() const;

  /// Whether the run delay is worth reading now.
  bool is_due(Nanos now) const {
    return !by_ranks_ && (!last_ || now - last_->at >= between_looks);
  }
  /// run_delay: what the calling thread, `thread`, has waited for a core in all; empty: unknown.
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

/// The time that the calling thread has waited for a core so far. Empty where the kernel does not
/// say.
std::optional<Nanos> run_delay();

/// How the waiting thread of one communicator is woken.
struct Sleeper {
  Engine* engine = nullptr;
  const Board* board = nullptr;
  int event_fd = -1;  // readable when rung while asleep in poll
};

/// Drives all engines until each is idle or has failed; their status() says which.
void drive(std::span<const Sleeper> sleepers, Oversubscription& oversubscription);

}  // namespace hocket::internal
