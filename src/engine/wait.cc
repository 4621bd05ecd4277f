#include "engine/wait.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <vector>

namespace hocket {
namespace {

// A sleeper looks around so often even unrung: deadlines and log lines need no more.
constexpr Nanos longest_sleep = 100 * nanos_per_ms;
// A peer in step answers within a few polls: a pause would only make the answer late.
constexpr unsigned polls_without_pause = 32;
constexpr unsigned moves_between_clock_reads = 256;

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Driver {
 public:
  Driver(std::span<const Sleeper> sleepers, const WaitPolicy& policy)
      : sleepers_(sleepers), policy_(policy) {}

  void run() {
    Nanos now = 0;
    unsigned quiet = 0, moves = 0;
    bool looked = false;  // whether a peer has this core
    Nanos quiet_since = 0;
    for (;;) {
      bool busy = false;
      const bool moved = run_all(now, &busy);
      if (!busy) return;
      now = 0;
      if (moved) {
        quiet = 0;
        looked = false;
        // A long operation that keeps moving has a deadline too.
        if (++moves % moves_between_clock_reads == 0) now = monotonic_now();
        continue;
      }
      if (++quiet <= policy_.polls) {
        if (quiet > polls_without_pause) pause_briefly();
        continue;
      }
      now = monotonic_now();
      if (quiet == policy_.polls + 1) quiet_since = now;
      const Nanos quiet_for = now - quiet_since;
      if (quiet_for < policy_.spin) {
        pause_briefly();
      } else {
        for (const Sleeper& sleeper : sleepers_) sleeper.engine->ring_pending();
        const bool on_a_peers_core = !looked && policy_.spin > 0 && shares_core();
        looked = true;
        if (quiet_for < policy_.yield && !on_a_peers_core) {
          ::sched_yield();
        } else {
          sleep();
        }
      }
    }
  }

 private:
  bool run_all(Nanos now, bool* busy) {
    bool moved = false;
    for (const Sleeper& sleeper : sleepers_) {
      moved |= sleeper.engine->run_once(now);
      *busy |= !sleeper.engine->idle();
    }
    return moved;
  }

  /// There is a core for each rank, and yet the scheduler may have put two on one. Yielding leaves
  /// them there; who sleeps is woken on another.
  bool shares_core() const {
    const int core = ::sched_getcpu();
    bool shares = false;
    for (const Sleeper& sleeper : sleepers_) shares |= sleeper.board->shares_core(core);
    return shares;
  }

  void sleep() {
    const bool futex = sleepers_.size() == 1 && sleepers_[0].engine->uses_board_only();
    const std::uint32_t how = futex ? Board::asleep_in_futex : Board::asleep_in_poll;
    for (const Sleeper& sleeper : sleepers_) sleeper.board->announce_sleep(how);
    // Whatever was published before the announcement is seen by this look; whatever comes after it
    // rings.
    bool busy = false;
    const bool moved = run_all(0, &busy);
    if (!moved && busy && futex) return sleepers_[0].board->sleep(longest_sleep);
    if (!moved && busy) sleep_in_poll();
    for (const Sleeper& sleeper : sleepers_) sleeper.board->announce_awake();
  }

  void sleep_in_poll() {
    waits_.clear();
    for (const Sleeper& sleeper : sleepers_) {
      waits_.push_back({sleeper.event_fd, POLLIN, 0});
      for (Transport* transport : sleeper.engine->transports()) {
        const int descriptor = transport->wait_descriptor();
        if (descriptor >= 0) waits_.push_back({descriptor, POLLIN, 0});
      }
    }
    ::poll(waits_.data(), waits_.size(), static_cast<int>(longest_sleep / nanos_per_ms));
    for (const Sleeper& sleeper : sleepers_) {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = ::read(sleeper.event_fd, &rings, sizeof rings);
    }
  }

  std::span<const Sleeper> sleepers_;
  const WaitPolicy& policy_;
  std::vector<pollfd> waits_;
};

}  // namespace

WaitPolicy WaitPolicy::for_crowd(double ranks_per_core) {
  if (ranks_per_core <= 1) return {};
  // The thread that this one waits for may need this very core.
  return {.polls = 8, .spin = 0, .yield = 500'000};
}

void drive(std::span<const Sleeper> sleepers, const WaitPolicy& policy) {
  Driver(sleepers, policy).run();
}

}  // namespace hocket
