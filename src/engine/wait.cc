#include "engine/wait.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/assert.h"
#include "base/unique_fd.h"

namespace hocket::internal {

thread_local Waiters* driven_for = nullptr;

namespace {

// A sleeping thread wakes so often without a ring: it is enough for deadlines and log lines.
constexpr Nanos longest_sleep = 100 * nanos_per_ms;
// A peer that is ready answers within a few polls: a pause would only add latency.
constexpr unsigned polls_without_pause = 32;
constexpr unsigned moves_between_clock_reads = 256;
// A core counts as shared after a wait for it of 1 / shared_fraction of the time between two looks.
constexpr Nanos shared_fraction = 10;
constexpr Nanos shared_for = nanos_per_s;

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Driver {
 public:
  Driver(std::span<const Sleeper> sleepers, Oversubscription& oversubscription,
         const std::atomic<bool>* stop)
      : sleepers_(sleepers), oversubscription_(oversubscription), stop_(stop) {}

  void run() {
    std::optional<Nanos> now;
    unsigned quiet = 0, moves = 0;
    bool looked = false;    // whether a peer has this core
    Nanos quiet_since = 0;  // 0: not yet
    const WaitPolicy* policy = &oversubscription_.policy();
    unsigned polls = 0;
    for (;;) {
      bool busy = false;
      const bool moved = run_all(now, &busy);
      if (!busy || stops()) return;
      now.reset();
      if (moved) {
        quiet = 0;
        quiet_since = 0;
        looked = false;
        // The deadline also ends a long operation that keeps moving.
        if (++moves % moves_between_clock_reads == 0) now = monotonic_now();
        continue;
      }
      if (++quiet == 1) polls = polls_of(*policy);
      if (quiet <= polls) {
        if (quiet > polls_without_pause) pause_briefly();
        continue;
      }
      policy = &oversubscription_.policy();
      polls = polls_of(*policy);
      if (quiet <= polls) continue;
      now = monotonic_now();
      if (quiet_since == 0) quiet_since = *now;
      const WaitPhase phase = policy->phase(*now - quiet_since);
      if (phase == WaitPhase::spin) {
        pause_briefly();
        continue;
      }
      for (const Sleeper& sleeper : sleepers_) sleeper.engine->ring_pending();
      if (oversubscription_.is_due(*now)) {
        oversubscription_.look(std::this_thread::get_id(), *now, run_delay());
      }
      const bool on_a_peers_core =
          !looked && !oversubscription_.shares_core() && peer_on_this_core();
      looked = true;
      if (phase == WaitPhase::yield && !on_a_peers_core) {
        ::sched_yield();
      } else {
        sleep();
      }
    }
  }

 private:
  /// Whether the caller must look at what other threads have done.
  bool stops() {
    if (stop_ == nullptr) return false;
    for (const Sleeper& sleeper : sleepers_) work_has_ended_ |= sleeper.engine->take_ended_work();
    return work_has_ended_ || stop_->load(std::memory_order_relaxed);
  }

  bool run_all(const std::optional<Nanos>& now, bool* busy) {
    bool moved = false;
    for (const Sleeper& sleeper : sleepers_) {
      Engine& engine = *sleeper.engine;
      moved |= engine.run_once(now);
      if (!engine.idle()) {
        *busy = true;
      } else if (engine.has_unreported_failure()) [[unlikely]] {
        engine.report_failure();
      }
    }
    return moved;
  }

  /// The polls of the policy, for what the operations wait for now: an operation between nodes with
  /// several ranks waits for the board and for sockets in turn.
  unsigned polls_of(const WaitPolicy& policy) const {
    if (policy.polls == policy.polls_by_calls) return policy.polls;
    const bool by_calls = !std::ranges::all_of(sleepers_, [](const Sleeper& sleeper) {
      return sleeper.engine->transports().use_board_only();
    });
    return by_calls ? policy.polls_by_calls : policy.polls;
  }

  /// The scheduler may run two ranks on one core although there is a core for each. A yield leaves
  /// both there; a thread that sleeps is woken on another core.
  bool peer_on_this_core() const {
    const int core = ::sched_getcpu();
    bool shares = false;
    for (const Sleeper& sleeper : sleepers_) shares |= sleeper.board->shares_core(core);
    return shares;
  }

  void sleep() {
    const bool futex = sleepers_.size() == 1 && sleepers_[0].engine->transports().use_board_only();
    const std::uint32_t how = futex ? Board::asleep_in_futex : Board::asleep_in_poll;
    for (const Sleeper& sleeper : sleepers_) sleeper.board->announce_sleep(how);
    // This round sees all that was published before the announcement; a peer that publishes later
    // rings.
    bool busy = false;
    const bool goes_on = run_all({}, &busy) || !busy || stops();
    if (!goes_on && futex) return sleepers_[0].board->sleep(longest_sleep);
    if (!goes_on) sleep_in_poll();
    for (const Sleeper& sleeper : sleepers_) sleeper.board->announce_awake();
  }

  void sleep_in_poll() {
    waits_.clear();
    for (const Sleeper& sleeper : sleepers_) {
      TransportSet& transports = sleeper.engine->transports();
      transports.prepare_to_sleep();
      waits_.push_back({sleeper.event_fd, POLLIN, 0});
      for (const Transport* transport : transports.all()) {
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
  Oversubscription& oversubscription_;
  const std::atomic<bool>* const stop_;
  bool work_has_ended_ = false;
  std::vector<pollfd> waits_;
};

}  // namespace

const WaitPolicy& Oversubscription::policy() const {
  static const WaitPolicy own_core;
  // The peer needs this core. Over tcp each poll is a system call per connection. With a yield of
  // 10 us instead of 500, broadcasts and scatters of 64 B to 4 and 8 ranks over tcp on 2 cores took
  // 0.85 to 0.93 of the time, but an all-reduce of 8 ranks took 1.15 times as long; with 50 us 0.92
  // to 0.97, and 1.13.
  static const WaitPolicy core_of_a_peer{
      .polls_alone = 0, .polls = 1, .polls_by_calls = 1, .spin = 0, .yield = 500'000};
  // A peer with a core of its own answers a small call within these polls. A system call after each
  // poll would double the time of such a call for a second, after some thread has run on this core
  // for a millisecond. But where each poll makes system calls, so many polls take the core from the
  // peers: 8 ranks in 8 network namespaces on 2 cores took 385 us for an all-reduce of 64 B, and
  // 135 us with a yield after the second poll.
  static const WaitPolicy loaded_core{
      .polls_alone = 32, .polls = 32, .polls_by_calls = 1, .spin = 0, .yield = 500'000};
  static const WaitPolicy background{
      .polls_alone = 0, .polls = 16, .polls_by_calls = 16, .spin = 0, .yield = 0};
  if (driven_for != nullptr && !driven_for->any()) return background;
  if (by_ranks_) return core_of_a_peer;
  return shared_until_ ? loaded_core : own_core;
}

void Oversubscription::look(std::thread::id thread, Nanos now, std::optional<Nanos> run_delay) {
  if (!run_delay) return;
  if (last_ && last_->thread == thread &&
      *run_delay - last_->run_delay >= (now - last_->at) / shared_fraction) {
    shared_until_ = now + shared_for;
  } else if (shared_until_ && now >= *shared_until_) {
    shared_until_.reset();
  }
  last_ = {thread, now, *run_delay};
}

std::optional<Nanos> run_delay() {
  const UniqueFd file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[96] = {};
  long long on_core = 0, waiting = 0;
  if (!file || ::read(file.get(), text, sizeof text - 1) <= 0 ||
      std::sscanf(text, "%lld %lld", &on_core, &waiting) != 2) {
    return {};
  }
  return waiting;
}

void drive(std::span<const Sleeper> sleepers, Oversubscription& oversubscription,
           const std::atomic<bool>* stop) {
  HOCKET_ASSERT(!sleepers.empty(), "there is an engine to drive");
  Driver(sleepers, oversubscription, stop).run();
}

}  // namespace hocket::internal
