#include "bootstrap/net/event_loop.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include "base/descriptors.h"

namespace hocket::internal {
namespace {
constexpr useconds_t pause_without_memory_us = 10'000;
}

// Never destroyed: the thread may outlive the static destructors of a program that exits without
// closing its communicators.
struct EventLoopGlobals {
  std::mutex mutex;
  std::shared_ptr<EventLoop> current;
  int leases = 0;
  std::atomic<bool> exiting{false};
  std::vector<std::shared_ptr<void>> abandoned;
  int retiring = 0;  // detached threads that have not ended: their last lease ended on themselves
  std::condition_variable retired;

  static EventLoopGlobals& get() {
    static auto* globals = new EventLoopGlobals;
    return *globals;
  }

  static void before_fork() {
    EventLoopGlobals& globals = get();
    globals.mutex.lock();
    if (globals.current) globals.current->fds_mutex_.lock();
  }
  static void after_fork_in_parent() {
    EventLoopGlobals& globals = get();
    if (globals.current) globals.current->fds_mutex_.unlock();
    globals.mutex.unlock();
  }
  static void after_fork_in_child() {
    EventLoopGlobals& globals = get();
    if (globals.current) {
      EventLoop& old = *globals.current;
      // close() only: shutdown() or epoll_ctl() would reach the parent's connections.
      for (auto& [token, watched] : old.watched_) ::close(watched.fd);
      old.epoll_.reset();
      old.wake_.reset();
      old.fds_mutex_.unlock();
      globals.abandoned.push_back(std::move(globals.current));
    }
    globals.retiring = 0;
    globals.leases = 0;
    globals.mutex.unlock();
  }
  static void wait_retired() {
    EventLoopGlobals& globals = get();
    std::unique_lock lock(globals.mutex);
    globals.retired.wait(lock, [&] { return globals.retiring == 0; });
  }
  /// Runs before OpenSSL and static objects are torn down, which a running thread might still use.
  static void at_exit() {
    EventLoopGlobals& globals = get();
    std::shared_ptr<EventLoop> loop;
    {
      std::lock_guard lock(globals.mutex);
      loop = std::move(globals.current);
      globals.leases = 0;
    }
    if (loop) {
      loop->run([self = loop.get()] { self->run_exit_tasks(); });
      loop->stop();
    }
    wait_retired();
    // Sessions that static objects still hold are dead from here on, as in a forked child.
    globals.exiting = true;
  }
};

std::uint64_t session_generation() {
  constexpr std::uint64_t exiting = std::uint64_t{1} << 63;
  return fork_generation() | (EventLoopGlobals::get().exiting.load() ? exiting : 0);
}

void abandon(std::shared_ptr<void> of_the_parent) {
  EventLoopGlobals& globals = EventLoopGlobals::get();
  std::lock_guard lock(globals.mutex);
  globals.abandoned.push_back(std::move(of_the_parent));
}

Status EventLoopRef::take(EventLoopRef* out) {
  static const bool prepared = [] {
    // OpenSSL registers its exit handler when it is first used in earnest: before ours, so that it
    // runs after ours.
    unsigned char digest[32] = {};
    ::HMAC(::EVP_sha256(), "", 0, digest, 0, digest, nullptr);
    ::pthread_atfork(EventLoopGlobals::before_fork, EventLoopGlobals::after_fork_in_parent,
                     EventLoopGlobals::after_fork_in_child);
    std::atexit(EventLoopGlobals::at_exit);
    hocket::internal::spare_descriptor = [] {
      EventLoopRef lease;  // the monitor stays, but is not started for this
      bool spared = false;
      if (EventLoopRef::take_running(&lease))
        lease->run([&] { spared = lease->spare_descriptor(); });
      return spared;
    };
    return true;
  }();
  static_cast<void>(prepared);
  EventLoopGlobals& globals = EventLoopGlobals::get();
  std::lock_guard lock(globals.mutex);
  if (!globals.current) {
    auto loop = std::make_shared<EventLoop>();
    HOCKET_RETURN_IF_ERROR(loop->start());
    globals.current = std::move(loop);
    globals.leases = 0;
  }
  out->take_current();
  return {};
}

/// With the globals locked, and a monitor that runs.
void EventLoopRef::take_current() {
  EventLoopGlobals& globals = EventLoopGlobals::get();
  ++globals.leases;
  loop_ = globals.current;
  generation_ = session_generation();
}

bool EventLoopRef::take_running(EventLoopRef* out) {
  EventLoopGlobals& globals = EventLoopGlobals::get();
  std::lock_guard lock(globals.mutex);
  if (globals.current) out->take_current();
  return globals.current != nullptr;
}

EventLoopRef& EventLoopRef::operator=(EventLoopRef&& other) noexcept {
  if (this != &other) {
    release();
    loop_ = std::move(other.loop_);
    generation_ = other.generation_;
  }
  return *this;
}

void EventLoopRef::release() {
  if (!loop_) return;
  EventLoopGlobals& globals = EventLoopGlobals::get();
  std::shared_ptr<EventLoop> last;
  {
    std::lock_guard lock(globals.mutex);
    if (generation_ == session_generation() && globals.current == loop_ && --globals.leases == 0) {
      last = std::move(globals.current);
      if (last->on_thread()) {  // a thread cannot join itself
        ++globals.retiring;
        last->retiring_ = true;
      }
    }
  }
  loop_.reset();
  if (last) last->stop();
}

Status EventLoop::start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return system_error("epoll_create1");
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return system_error("eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return system_error("epoll_ctl");
  }
  now_ = monotonic_now();
  auto* self = new std::shared_ptr<EventLoop>(shared_from_this());
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  const int error = ::pthread_create(&thread_, nullptr, thread_main, self);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    delete self;
    return system_error("cannot start the monitor thread", error);
  }
  ::pthread_setname_np(thread_, "hocket-monitor");
  return {};
}

void* EventLoop::thread_main(void* argument) {
  auto* holder = static_cast<std::shared_ptr<EventLoop>*>(argument);
  std::shared_ptr<EventLoop> self = std::move(*holder);
  delete holder;
  self->loop();
  const bool retiring = self->retiring_;
  self.reset();
  ::OPENSSL_thread_stop();  // what it keeps for this thread, before exit handlers may end it
  if (retiring) {
    EventLoopGlobals& globals = EventLoopGlobals::get();
    std::lock_guard lock(globals.mutex);
    --globals.retiring;
    globals.retired.notify_all();
  }
  return nullptr;
}

bool EventLoop::on_thread() const { return ::pthread_equal(::pthread_self(), thread_) != 0; }

void EventLoop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

/// With posted_mutex_ held. The thread is woken by whoever posts the first one.
void EventLoop::append(Posted* posted) {
  const bool is_first = first_posted_ == nullptr;
  *posted_end_ = posted;
  posted_end_ = &posted->next;
  if (is_first) wake();
}

void EventLoop::post(Task task) {
  auto posted = std::make_unique<Posted>();
  posted->own = std::move(task);
  std::lock_guard lock(posted_mutex_);
  if (!stopped_) append(posted.release());
}

void EventLoop::run(const Task& task) {
  if (on_thread()) return task();
  bool ended = false;
  Posted posted;
  posted.task = &task;
  posted.ended = &ended;
  std::unique_lock lock(posted_mutex_);
  if (stopped_) {
    lock.unlock();
    return task();
  }
  append(&posted);
  ended_.wait(lock, [&] { return ended; });
}

void EventLoop::stop() {
  const bool own = on_thread();
  {
    std::lock_guard lock(posted_mutex_);
    stopping_ = true;
  }
  wake();
  if (own) {
    ::pthread_detach(thread_);  // it leaves its loop after this round
  } else {
    ::pthread_join(thread_, nullptr);
  }
}

EventLoop::Token EventLoop::watch(int fd, std::uint32_t events, Ready ready) {
  const Token token = next_token_++;
  std::lock_guard lock(fds_mutex_);
  watched_[token] = {fd, events, std::make_shared<Ready>(std::move(ready))};
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    // Out of memory or watches: behave as if the descriptor had failed, at once.
    try {
      timers_[{now_, token}] = [this, token] {
        if (const auto found = watched_.find(token); found != watched_.end()) {
          const std::shared_ptr<Ready> handler = found->second.ready;
          (*handler)(EPOLLERR | EPOLLHUP);
        }
      };
    } catch (const std::bad_alloc&) {
      watched_.erase(token);
      throw;
    }
  }
  return token;
}

void EventLoop::modify(Token token, std::uint32_t events) {
  const auto found = watched_.find(token);
  if (found == watched_.end() || found->second.events == events) return;
  found->second.events = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event);
}

void EventLoop::unwatch(Token token) {
  const auto found = watched_.find(token);
  if (found == watched_.end()) return;
  std::lock_guard lock(fds_mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watched_.erase(found);
}

EventLoop::Token EventLoop::at(Nanos when, Task task) {
  const Token token = next_token_++;
  const auto time = timer_times_.emplace(token, when).first;
  try {
    timers_[{when, token}] = std::move(task);
  } catch (const std::bad_alloc&) {
    timer_times_.erase(time);
    throw;
  }
  return token;
}

void EventLoop::cancel(Token token) {
  const auto found = timer_times_.find(token);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, token});
  timer_times_.erase(found);
}

EventLoop::Token EventLoop::on_exit(Task task) {
  const Token token = next_token_++;
  exit_tasks_[token] = std::move(task);
  return token;
}

void EventLoop::cancel_exit(Token token) { exit_tasks_.erase(token); }

void EventLoop::run_exit_tasks() {
  std::map<Token, Task> tasks;
  tasks.swap(exit_tasks_);
  for (const auto& [token, task] : tasks) best_effort(task);
}

/// Runs a handler. What it throws is told to all clients: which of them it served is not known, and
/// where memory is out, it is out for all.
template <typename Handler>
void EventLoop::attempt(const Handler& handler) {
  const Status status = status_of_call([&]() -> Status {
    handler();
    return {};
  });
  if (failure_.ok()) failure_ = status;
}

void EventLoop::tell_clients() {
  bool again = false;
  for (std::size_t i = 0; i < clients_.size();) {
    Client* const client = clients_[i];
    bool done = false;
    best_effort([&] { done = client->fail(failure_); });
    again |= !done;
    if (i < clients_.size() && clients_[i] == client) ++i;  // else it has removed itself
  }
  if (!again) failure_ = {};
  // A handler that found no memory may be called again at once: let others give some back.
  ::usleep(pause_without_memory_us);
}

bool EventLoop::spare_descriptor() {
  for (const bool any : {false, true}) {
    for (Spender* spender : spenders_) {
      if (spender->spare_descriptor(any)) return true;
    }
  }
  return false;
}

void EventLoop::run_posted() {
  Posted* next;
  {
    std::lock_guard lock(posted_mutex_);
    next = std::exchange(first_posted_, nullptr);
    posted_end_ = &first_posted_;
  }
  while (next != nullptr) {
    Posted* const posted = std::exchange(next, next->next);
    attempt([posted] { (*posted->task)(); });
    if (posted->ended == nullptr) {
      delete posted;
      continue;
    }
    std::lock_guard lock(posted_mutex_);
    *posted->ended = true;
    ended_.notify_all();
  }
}

void EventLoop::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now_) {
    const auto first = timers_.begin();
    const Task task = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    attempt(task);
  }
}

int EventLoop::wait_ms() const {
  if (!failure_.ok()) return 0;
  if (timers_.empty()) return -1;
  const Nanos left = timers_.begin()->first.first - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(
      std::min<Nanos>((left + nanos_per_ms - 1) / nanos_per_ms, std::numeric_limits<int>::max()));
}

void EventLoop::loop() {
  epoll_event events[64];
  bool last_round = false;
  while (!last_round) {
    const int count = ::epoll_wait(epoll_.get(), events, 64, wait_ms());
    now_ = monotonic_now();
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) {
        std::uint64_t drained;
        [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &drained, sizeof drained);
        continue;
      }
      const auto found = watched_.find(events[i].data.u64);
      if (found == watched_.end()) continue;  // unwatched earlier in this round
      const std::shared_ptr<Ready> ready = found->second.ready;
      attempt([&] { (*ready)(events[i].events); });
    }
    {
      // After the wake-ups have been drained: one of them may be stop()'s.
      std::lock_guard lock(posted_mutex_);
      last_round = stopping_;
    }
    run_posted();
    run_timers();
    if (!failure_.ok()) [[unlikely]]
      tell_clients();
  }
  let_go();
}

/// Handlers own what they watch: lets them go here, on the thread, one level at a time.
void EventLoop::let_go() {
  for (;;) {
    run_posted();
    std::map<std::pair<Nanos, Token>, Task> timers;
    timers.swap(timers_);
    timer_times_.clear();
    std::map<Token, Watched> watched;
    {
      std::lock_guard lock(fds_mutex_);
      watched.swap(watched_);
    }
    if (!timers.empty() || !watched.empty()) continue;
    std::lock_guard lock(posted_mutex_);
    if (first_posted_ != nullptr) continue;
    stopped_ = true;
    return;
  }
}

}  // namespace hocket::internal
