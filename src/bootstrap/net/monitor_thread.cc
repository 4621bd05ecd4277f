#include "bootstrap/net/monitor_thread.h"

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
struct MonitorGlobals {
  std::mutex mutex;
  std::shared_ptr<MonitorThread> current;
  int references = 0;
  std::atomic<bool> exiting{false};
  std::vector<std::shared_ptr<void>> abandoned;
  int retiring = 0;  // detached threads (see retiring_) that have not ended
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
    if (globals.current) {
      MonitorThread& old = *globals.current;
      // close() only: shutdown() or epoll_ctl() would reach the parent's connections.
      for (auto& [token, watched] : old.watched_) ::close(watched.fd);
      old.epoll_.reset();
      old.wake_.reset();
      old.fds_mutex_.unlock();
      globals.abandoned.push_back(std::move(globals.current));
    }
    globals.retiring = 0;
    globals.references = 0;
    globals.mutex.unlock();
  }
  static void wait_retired() {
    MonitorGlobals& globals = get();
    std::unique_lock lock(globals.mutex);
    globals.retired.wait(lock, [&] { return globals.retiring == 0; });
  }
  /// Runs before OpenSSL and static objects, which a running thread may use, are destroyed.
  static void at_exit() {
    MonitorGlobals& globals = get();
    std::shared_ptr<MonitorThread> loop;
    {
      std::lock_guard lock(globals.mutex);
      loop = std::move(globals.current);
      globals.references = 0;
    }
    if (loop) {
      loop->run([self = loop.get()] { self->tell_clients_of_exit(); });
      loop->await_exit_delays();
      loop->stop();
    }
    wait_retired();
    // From here on sessions that static objects hold must not be used, as in a forked child.
    globals.exiting = true;
  }
};

std::uint64_t session_generation() {
  constexpr std::uint64_t exiting = std::uint64_t{1} << 63;
  return fork_generation() | (MonitorGlobals::get().exiting.load() ? exiting : 0);
}

void abandon(std::shared_ptr<void> of_the_parent) {
  MonitorGlobals& globals = MonitorGlobals::get();
  std::lock_guard lock(globals.mutex);
  globals.abandoned.push_back(std::move(of_the_parent));
}

Status MonitorRef::take(MonitorRef* out) {
  static const bool prepared = [] {
    // OpenSSL registers its exit handler when a function of it is called first. This call makes it
    // register before us, so that its handler runs after ours.
    unsigned char digest[32] = {};
    ::HMAC(::EVP_sha256(), "", 0, digest, 0, digest, nullptr);
    ::pthread_atfork(MonitorGlobals::before_fork, MonitorGlobals::after_fork_in_parent,
                     MonitorGlobals::after_fork_in_child);
    std::atexit(MonitorGlobals::at_exit);
    hocket::internal::spare_descriptor = [] {
      MonitorRef monitor;  // the thread is not started for this
      bool spared = false;
      if (MonitorRef::take_running(&monitor)) {
        monitor->run([&] { spared = monitor->spare_descriptor(); });
      }
      return spared;
    };
    return true;
  }();
  static_cast<void>(prepared);
  MonitorGlobals& globals = MonitorGlobals::get();
  std::lock_guard lock(globals.mutex);
  if (!globals.current) {
    auto loop = std::make_shared<MonitorThread>();
    HOCKET_RETURN_IF_ERROR(loop->start());
    globals.current = std::move(loop);
    globals.references = 0;
  }
  out->take_current();
  return {};
}

/// The caller holds globals.mutex, and the thread runs.
void MonitorRef::take_current() {
  MonitorGlobals& globals = MonitorGlobals::get();
  ++globals.references;
  loop_ = globals.current;
  generation_ = session_generation();
}

bool MonitorRef::take_running(MonitorRef* out) {
  MonitorGlobals& globals = MonitorGlobals::get();
  std::lock_guard lock(globals.mutex);
  if (globals.current) out->take_current();
  return globals.current != nullptr;
}

MonitorRef& MonitorRef::operator=(MonitorRef&& other) noexcept {
  if (this != &other) {
    release();
    loop_ = std::move(other.loop_);
    generation_ = other.generation_;
  }
  return *this;
}

void MonitorRef::release() {
  if (!loop_) return;
  MonitorGlobals& globals = MonitorGlobals::get();
  std::shared_ptr<MonitorThread> last;
  {
    std::lock_guard lock(globals.mutex);
    if (generation_ == session_generation() && globals.current == loop_ &&
        --globals.references == 0) {
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

Status MonitorThread::start() {
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
  auto* self = new std::shared_ptr<MonitorThread>(shared_from_this());
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

void* MonitorThread::thread_main(void* argument) {
  auto* holder = static_cast<std::shared_ptr<MonitorThread>*>(argument);
  std::shared_ptr<MonitorThread> self = std::move(*holder);
  delete holder;
  self->loop();
  const bool retiring = self->retiring_;
  self.reset();
  ::OPENSSL_thread_stop();  // frees OpenSSL's data of this thread, before exit handlers may run
  if (retiring) {
    MonitorGlobals& globals = MonitorGlobals::get();
    std::lock_guard lock(globals.mutex);
    --globals.retiring;
    globals.retired.notify_all();
  }
  return nullptr;
}

bool MonitorThread::on_thread() const { return ::pthread_equal(::pthread_self(), thread_) != 0; }

void MonitorThread::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

/// The caller holds posted_mutex_. The first task of a round wakes the thread.
void MonitorThread::append(Posted* posted) {
  const bool is_first = first_posted_ == nullptr;
  *posted_end_ = posted;
  posted_end_ = &posted->next;
  if (is_first) wake();
}

void MonitorThread::post(Task task) {
  auto posted = std::make_unique<Posted>();
  posted->own = std::move(task);
  std::lock_guard lock(posted_mutex_);
  if (!stopped_) append(posted.release());
}

void MonitorThread::run(const std::function<void()>& task) {
  if (on_thread()) return task();
  bool ended = false;
  Posted posted;
  posted.callers = &task;
  posted.ended = &ended;
  std::unique_lock lock(posted_mutex_);
  if (stopped_) {
    lock.unlock();
    return task();
  }
  append(&posted);
  ended_.wait(lock, [&] { return ended; });
}

void MonitorThread::stop() {
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

Watch MonitorThread::watch(int fd, std::uint32_t events, Ready ready) {
  const Token token = next_token_++;
  std::lock_guard lock(fds_mutex_);
  watched_[token] = {fd, events, std::make_shared<Ready>(std::move(ready))};
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    // Out of memory or watches: the handler is called as if the descriptor had failed.
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
  return {*this, token};
}

void MonitorThread::modify(Token token, std::uint32_t events) {
  const auto found = watched_.find(token);
  if (found == watched_.end() || found->second.events == events) return;
  found->second.events = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event);
}

void MonitorThread::unwatch(Token token) noexcept {
  const auto found = watched_.find(token);
  if (found == watched_.end()) return;
  std::lock_guard lock(fds_mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watched_.erase(found);
}

Timer MonitorThread::at(Nanos when, Task task) {
  const Token token = next_token_++;
  const auto time = timer_times_.emplace(token, when).first;
  try {
    timers_[{when, token}] = std::move(task);
  } catch (const std::bad_alloc&) {
    timer_times_.erase(time);
    throw;
  }
  return {*this, token};
}

void MonitorThread::cancel(Token token) noexcept {
  const auto found = timer_times_.find(token);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, token});
  timer_times_.erase(found);
}

void MonitorThread::add_exit_delay() noexcept {
  const std::lock_guard lock(posted_mutex_);
  ++exit_delays_;
}

void MonitorThread::end_exit_delay() noexcept {
  const std::lock_guard lock(posted_mutex_);
  --exit_delays_;
  ended_.notify_all();
}

void MonitorThread::await_exit_delays() {
  std::unique_lock lock(posted_mutex_);
  ended_.wait(lock, [&] { return exit_delays_ == 0; });
}

void MonitorThread::keep(std::shared_ptr<void> object) {
  Kept& kept = kept_.emplace_front();
  kept.object = std::move(object);
  // False at the process's exit: then the loop ends in any case.
  static_cast<void>(MonitorRef::take_running(&kept.running));
}

std::list<MonitorThread::Kept>::iterator MonitorThread::find_kept(const void* object) {
  return std::find_if(kept_.begin(), kept_.end(),
                      [&](const Kept& kept) { return kept.object.get() == object; });
}

void MonitorThread::let_loop_end(const void* object) noexcept {
  if (const auto kept = find_kept(object); kept != kept_.end()) kept->running.release();
}

void MonitorThread::release(const void* object) noexcept {
  if (const auto kept = find_kept(object); kept != kept_.end()) {
    released_.splice(released_.end(), kept_, kept);
  }
}

/// Runs a handler. If the handler throws, all clients are told, because the loop does not know
/// which client the handler belongs to, and because a lack of memory concerns all of them.
template <typename Handler>
void MonitorThread::attempt(const Handler& handler) {
  const Status status = status_of_call([&]() -> Status {
    handler();
    return {};
  });
  if (failure_.ok()) failure_ = status;
}

void MonitorThread::tell_failure() {
  if (tell_clients(failure_)) failure_ = {};
  // The handler may be called again at once: other threads get time to free memory.
  ::usleep(pause_without_memory_us);
}

void MonitorThread::run_posted() {
  Posted* next;
  {
    std::lock_guard lock(posted_mutex_);
    next = std::exchange(first_posted_, nullptr);
    posted_end_ = &first_posted_;
  }
  while (next != nullptr) {
    Posted* const posted = std::exchange(next, next->next);
    attempt([posted] { posted->callers != nullptr ? (*posted->callers)() : posted->own(); });
    if (posted->ended == nullptr) {
      delete posted;
      continue;
    }
    std::lock_guard lock(posted_mutex_);
    *posted->ended = true;
    ended_.notify_all();
  }
}

void MonitorThread::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now_) {
    const auto first = timers_.begin();
    const Task task = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    attempt(task);
  }
}

int MonitorThread::wait_ms() const {
  if (!failure_.ok()) return 0;
  if (timers_.empty()) return -1;
  const Nanos left = timers_.begin()->first.first - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(
      std::min<Nanos>((left + nanos_per_ms - 1) / nanos_per_ms, std::numeric_limits<int>::max()));
}

void MonitorThread::loop() {
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
      const Token token = events[i].data.u64;  // a copy: the event is packed
      const auto found = watched_.find(token);
      if (found == watched_.end()) continue;  // unwatched earlier in this round
      const std::shared_ptr<Ready> ready = found->second.ready;
      attempt([&] { (*ready)(events[i].events); });
    }
    {
      // After the reading of wake_: stop() may have written to it.
      std::lock_guard lock(posted_mutex_);
      last_round = stopping_;
    }
    run_posted();
    run_timers();
    if (!failure_.ok()) [[unlikely]]
      tell_failure();
    std::list<Kept> released;  // the destructors of these objects may change released_
    released.swap(released_);
  }
  destroy_kept_objects();
}

/// Destroys the kept objects, on the monitor thread. Their destructors may post tasks, and these
/// tasks may make the loop keep further objects.
void MonitorThread::destroy_kept_objects() {
  for (;;) {
    run_posted();
    std::list<Kept> kept;
    kept.swap(kept_);
    kept.splice(kept.end(), released_);
    if (!kept.empty()) continue;
    std::lock_guard lock(posted_mutex_);
    if (first_posted_ != nullptr) continue;
    stopped_ = true;
    return;
  }
}

}  // namespace hocket::internal
