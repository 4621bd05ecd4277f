#include "bootstrap/monitor.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <limits>

namespace hocket {

// Never destroyed: the thread may outlive the static destructors of a program that exits without
// closing its communicators.
struct MonitorGlobals {
  std::mutex mutex;
  std::shared_ptr<Monitor> current;
  int leases = 0;
  std::atomic<std::uint64_t> generation{1};
  std::vector<std::shared_ptr<void>> abandoned;
  int retiring = 0;  // detached threads that have not ended: their last lease ended on themselves
  std::condition_variable retired;

  static MonitorGlobals& get() {
    static auto* globals = new MonitorGlobals;
    return *globals;
  }

  static void before_fork() {
    MonitorGlobals& globals = get();
    globals.mutex.lock();
    if (globals.current) globals.current->fds_mutex_.lock();
  }
  static void after_fork_in_parent() {
    MonitorGlobals& globals = get();
    if (globals.current) globals.current->fds_mutex_.unlock();
    globals.mutex.unlock();
  }
  static void after_fork_in_child() {
    MonitorGlobals& globals = get();
    globals.generation.fetch_add(1);
    if (globals.current) {
      Monitor& old = *globals.current;
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
    MonitorGlobals& globals = get();
    std::unique_lock lock(globals.mutex);
    globals.retired.wait(lock, [&] { return globals.retiring == 0; });
  }
  /// Runs before OpenSSL and static objects are torn down, which a running thread might still use.
  static void at_exit() {
    MonitorGlobals& globals = get();
    std::shared_ptr<Monitor> monitor;
    {
      std::lock_guard lock(globals.mutex);
      monitor = std::move(globals.current);
      globals.leases = 0;
    }
    if (monitor) {
      monitor->post([self = monitor.get()] { self->run_exit_tasks(); });
      monitor->stop();  // when what was posted has run
    }
    wait_retired();
    // Sessions that static objects still hold are dead from here on, as in a forked child.
    globals.generation.fetch_add(1);
  }
};

std::uint64_t fork_generation() { return MonitorGlobals::get().generation.load(); }

void abandon(std::shared_ptr<void> of_the_parent) {
  MonitorGlobals& globals = MonitorGlobals::get();
  std::lock_guard lock(globals.mutex);
  globals.abandoned.push_back(std::move(of_the_parent));
}

Status MonitorLease::take(MonitorLease* out) {
  static const bool prepared = [] {
    // OpenSSL registers its exit handler when it is first used in earnest: before ours, so that it
    // runs after ours.
    unsigned char digest[32] = {};
    ::HMAC(::EVP_sha256(), "", 0, digest, 0, digest, nullptr);
    ::pthread_atfork(MonitorGlobals::before_fork, MonitorGlobals::after_fork_in_parent,
                     MonitorGlobals::after_fork_in_child);
    std::atexit(MonitorGlobals::at_exit);
    return true;
  }();
  static_cast<void>(prepared);
  MonitorGlobals& globals = MonitorGlobals::get();
  std::lock_guard lock(globals.mutex);
  if (!globals.current) {
    auto monitor = std::make_shared<Monitor>();
    HOCKET_RETURN_IF_ERROR(monitor->start());
    globals.current = std::move(monitor);
    globals.leases = 0;
  }
  ++globals.leases;
  out->release();
  out->monitor_ = globals.current;
  out->generation_ = globals.generation.load();
  return {};
}

MonitorLease& MonitorLease::operator=(MonitorLease&& other) noexcept {
  if (this != &other) {
    release();
    monitor_ = std::move(other.monitor_);
    generation_ = other.generation_;
  }
  return *this;
}

void MonitorLease::release() {
  if (!monitor_) return;
  MonitorGlobals& globals = MonitorGlobals::get();
  std::shared_ptr<Monitor> last;
  {
    std::lock_guard lock(globals.mutex);
    if (generation_ == globals.generation.load() && globals.current == monitor_ &&
        --globals.leases == 0) {
      last = std::move(globals.current);
      if (last->on_thread()) {  // a thread cannot join itself
        ++globals.retiring;
        last->retiring_ = true;
      }
    }
  }
  monitor_.reset();
  if (last) last->stop();
}

Status Monitor::start() {
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
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  auto* self = new std::shared_ptr<Monitor>(shared_from_this());
  const int error = ::pthread_create(&thread_, nullptr, thread_main, self);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    delete self;
    return system_error("cannot start the monitor thread", error);
  }
  ::pthread_setname_np(thread_, "hocket-monitor");
  return {};
}

void* Monitor::thread_main(void* argument) {
  auto* holder = static_cast<std::shared_ptr<Monitor>*>(argument);
  std::shared_ptr<Monitor> self = std::move(*holder);
  delete holder;
  self->loop();
  const bool retiring = self->retiring_;
  self.reset();
  ::OPENSSL_thread_stop();  // what it keeps for this thread, before exit handlers may end it
  if (retiring) {
    MonitorGlobals& globals = MonitorGlobals::get();
    std::lock_guard lock(globals.mutex);
    --globals.retiring;
    globals.retired.notify_all();
  }
  return nullptr;
}

bool Monitor::on_thread() const { return ::pthread_equal(::pthread_self(), thread_) != 0; }

void Monitor::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Monitor::post(Task task) {
  {
    std::lock_guard lock(posted_mutex_);
    if (stopped_) return;
    posted_.push_back(std::move(task));
    if (posted_.size() > 1) return;  // whoever posted the first one woke the thread
  }
  wake();
}

void Monitor::run(const Task& task) {
  if (on_thread()) return task();
  struct Call {
    bool ended = false;
  };
  auto call = std::make_shared<Call>();
  std::unique_lock lock(posted_mutex_);
  if (stopped_) {
    lock.unlock();
    return task();
  }
  posted_.push_back([this, call, task] {
    task();
    std::lock_guard end(posted_mutex_);
    call->ended = true;
    ended_.notify_all();
  });
  wake();
  ended_.wait(lock, [&] { return call->ended; });
}

void Monitor::stop() {
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

Monitor::Token Monitor::watch(int fd, std::uint32_t events, Ready ready) {
  const Token token = next_token_++;
  std::lock_guard lock(fds_mutex_);
  watched_[token] = {fd, events, std::make_shared<Ready>(std::move(ready))};
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    // Out of memory or watches: behave as if the descriptor had failed, at once.
    timers_[{now_, token}] = [this, token] {
      if (const auto found = watched_.find(token); found != watched_.end()) {
        const std::shared_ptr<Ready> handler = found->second.ready;
        (*handler)(EPOLLERR | EPOLLHUP);
      }
    };
    timer_times_[token] = now_;
  }
  return token;
}

void Monitor::modify(Token token, std::uint32_t events) {
  const auto found = watched_.find(token);
  if (found == watched_.end() || found->second.events == events) return;
  found->second.events = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event);
}

void Monitor::unwatch(Token token) {
  const auto found = watched_.find(token);
  if (found == watched_.end()) return;
  std::lock_guard lock(fds_mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watched_.erase(found);
}

Monitor::Token Monitor::at(Nanos when, Task task) {
  const Token token = next_token_++;
  timers_[{when, token}] = std::move(task);
  timer_times_[token] = when;
  return token;
}

void Monitor::cancel(Token token) {
  const auto found = timer_times_.find(token);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, token});
  timer_times_.erase(found);
}

Monitor::Token Monitor::on_exit(Task task) {
  const Token token = next_token_++;
  exit_tasks_[token] = std::move(task);
  return token;
}

void Monitor::cancel_exit(Token token) { exit_tasks_.erase(token); }

void Monitor::run_exit_tasks() {
  std::map<Token, Task> tasks;
  tasks.swap(exit_tasks_);
  for (const auto& [token, task] : tasks) task();
}

void Monitor::run_posted() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(posted_mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) {
    task();
    task = nullptr;  // what it held ends here, in order
  }
}

void Monitor::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now_) {
    const auto first = timers_.begin();
    const Task task = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    task();
  }
}

int Monitor::wait_ms() const {
  if (timers_.empty()) return -1;
  const Nanos left = timers_.begin()->first.first - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(
      std::min<Nanos>((left + nanos_per_ms - 1) / nanos_per_ms, std::numeric_limits<int>::max()));
}

void Monitor::loop() {
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
      (*ready)(events[i].events);
    }
    {
      // After the wake-ups have been drained: one of them may be stop()'s.
      std::lock_guard lock(posted_mutex_);
      last_round = stopping_;
    }
    run_posted();
    run_timers();
  }
  // Handlers own what they watch: let them go here, on the thread, one level at a time.
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
    if (!posted_.empty()) continue;
    stopped_ = true;
    return;
  }
}

}  // namespace hocket
