// Event loops that a test drives in one thread, on a clock that only the test moves. Sockets are
// those of the kernel. The clock moves when no loop has anything to do, and then to the next timer.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/net/event_loop.h"

namespace hocket::internal::testing {

class SimulatedLoop final : public EventLoop {
 public:
  explicit SimulatedLoop(const Nanos& clock)
      : clock_(clock), now_(clock), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
  ~SimulatedLoop() override {
    posted_.clear();
    kept_.clear();
  }

  void post(Task task) override { posted_.push_back(std::move(task)); }
  void run(const std::function<void()>& task) override { task(); }

  Watch watch(int fd, std::uint32_t epoll_events, Ready ready) override {
    const Token token = next_token_++;
    watched_[token] = {fd, std::make_shared<Ready>(std::move(ready))};
    control(EPOLL_CTL_ADD, fd, token, epoll_events);
    return {*this, token};
  }
  Timer at(Nanos when, Task task) override {
    const Token token = next_token_++;
    timers_[{when, token}] = std::move(task);
    return {*this, token};
  }
  Nanos now() const override { return now_; }

  void keep(std::shared_ptr<void> object) override { kept_.push_back(std::move(object)); }
  void let_loop_end(const void*) noexcept override {}
  void release(const void* object) noexcept override {
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& kept) { return kept.get() == object; });
    if (found == kept_.end()) return;
    released_.push_back(std::move(*found));
    kept_.erase(found);
  }
  std::size_t kept() const { return kept_.size(); }
  void tell_of_exit() { tell_clients_of_exit(); }
  int exit_delays() const { return exit_delays_; }

  /// One round: runs what is ready. Returns false if nothing was.
  bool step() {
    now_ = clock_;
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
    for (int i = 0; i < count; ++i) {
      const Token token = events[i].data.u64;  // a copy: the event is packed
      const auto found = watched_.find(token);
      if (found == watched_.end()) continue;
      const std::shared_ptr<Ready> ready = found->second.ready;
      (*ready)(events[i].events);
    }
    bool any = count > 0;
    for (std::size_t left = posted_.size(); left > 0; --left) {
      const Task task = std::move(posted_.front());
      posted_.pop_front();
      task();
      any = true;
    }
    while (next_timer() <= now_) {
      const Task task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      task();
      any = true;
    }
    std::vector<std::shared_ptr<void>> released;
    released.swap(released_);
    return any;
  }
  Nanos next_timer() const {
    return timers_.empty() ? std::numeric_limits<Nanos>::max() : timers_.begin()->first.first;
  }
  int descriptor() const { return epoll_.get(); }  // readable if a watched descriptor is ready

 private:
  struct Watched {
    int fd;
    std::shared_ptr<Ready> ready;
  };
  void control(int operation, int fd, Token token, std::uint32_t epoll_events) {
    epoll_event event{};
    event.events = epoll_events;
    event.data.u64 = token;
    EXPECT_EQ(0, ::epoll_ctl(epoll_.get(), operation, fd, &event));
  }
  void modify(Token token, std::uint32_t epoll_events) override {
    control(EPOLL_CTL_MOD, watched_.at(token).fd, token, epoll_events);
  }
  void unwatch(Token token) noexcept override {
    control(EPOLL_CTL_DEL, watched_.at(token).fd, token, 0);
    watched_.erase(token);
  }
  void cancel(Token token) noexcept override {
    std::erase_if(timers_, [token](const auto& timer) { return timer.first.second == token; });
  }
  void add_exit_delay() noexcept override { ++exit_delays_; }
  void end_exit_delay() noexcept override { --exit_delays_; }

  const Nanos& clock_;
  Nanos now_;
  UniqueFd epoll_;
  Token next_token_ = 1;
  std::map<Token, Watched> watched_;
  std::map<std::pair<Nanos, Token>, Task> timers_;
  std::deque<Task> posted_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::shared_ptr<void>> released_;
  int exit_delays_ = 0;
};

/// The loops of several simulated processes, and their clock.
class Simulation {
 public:
  static constexpr Nanos start = 5 * nanos_per_s;  // no relation to any clock of the machine

  Nanos now() const { return clock_; }
  Nanos elapsed() const { return clock_ - start; }
  std::unique_ptr<SimulatedLoop> make_loop() const {
    return std::make_unique<SimulatedLoop>(clock_);
  }
  /// A loop that is not scheduled stands still, as that of a stopped process.
  void schedule(SimulatedLoop& loop) { loops_.push_back(&loop); }
  void unschedule(SimulatedLoop& loop) { std::erase(loops_, &loop); }

  /// Runs the loops until none of them has anything to do before the clock moves.
  void settle() {
    do {
      while (step()) continue;
    } while (delivers());
  }
  /// One round of one loop.
  void step(std::mt19937_64& random) { loops_[random() % loops_.size()]->step(); }
  /// Runs the loops, and moves the clock, until done() holds; returns false if the clock would have
  /// to pass `limit` first.
  bool run_until(const std::function<bool()>& done, Nanos limit) {
    for (settle(); !done(); settle()) {
      Nanos next = std::numeric_limits<Nanos>::max();
      for (const SimulatedLoop* loop : loops_) next = std::min(next, loop->next_timer());
      if (next > limit) return false;
      clock_ = std::max(clock_, next);
    }
    return true;
  }

 private:
  bool step() {
    bool any = false;
    for (std::size_t i = 0; i < loops_.size(); ++i) any |= loops_[i]->step();
    return any;
  }
  /// The kernel may deliver what was sent over loopback TCP a moment after the send.
  bool delivers() const {
    constexpr int moment_ms = 2;
    std::vector<pollfd> polled;
    for (const SimulatedLoop* loop : loops_) polled.push_back({loop->descriptor(), POLLIN, 0});
    return ::poll(polled.data(), polled.size(), moment_ms) > 0;
  }

  Nanos clock_ = start;
  std::vector<SimulatedLoop*> loops_;
};

}  // namespace hocket::internal::testing
