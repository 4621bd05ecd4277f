// The process's event loop: one thread, which sleeps in epoll_wait. All other code in src/bootstrap
// is state machines on it; locks guard only what other threads share with it.
//
// The thread starts with the first MonitorRef and ends with the last one, or when the process
// exits. It blocks all signals. A forked child has no such thread: the child closes its copies of
// the watched descriptors, so that they cannot keep a connection of the parent open, and touches
// nothing else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "base/fork.h"
#include "base/unique_fd.h"
#include "bootstrap/net/event_loop.h"

namespace hocket::internal {

class MonitorThread;

/// Keeps the monitor thread running.
class MonitorRef {
 public:
  MonitorRef() = default;
  /// Starts the thread if it does not run. *out must be empty.
  static Status take(MonitorRef* out);
  /// Returns false if the thread does not run.
  static bool take_running(MonitorRef* out);
  MonitorRef(MonitorRef&& other) noexcept
      : loop_(std::move(other.loop_)), generation_(other.generation_) {}
  MonitorRef& operator=(MonitorRef&& other) noexcept;
  ~MonitorRef() { release(); }
  void release();
  EventLoop& operator*() const;
  EventLoop* operator->() const { return &**this; }

 private:
  void take_current();
  std::shared_ptr<MonitorThread> loop_;
  std::uint64_t generation_ = 0;
};

class MonitorThread final : public EventLoop, public std::enable_shared_from_this<MonitorThread> {
 public:
  void post(Task task) override;
  void run(const std::function<void()>& task) override;
  Watch watch(int fd, std::uint32_t epoll_events, Ready ready) override;
  Timer at(Nanos when, Task task) override;
  Nanos now() const override { return now_; }
  void keep(std::shared_ptr<void> object) override;
  void let_loop_end(const void* object) noexcept override;
  void release(const void* object) noexcept override;

 private:
  friend class MonitorRef;
  friend struct MonitorGlobals;
  struct Watched {
    int fd;
    std::uint32_t events;
    std::shared_ptr<Ready> ready;
  };
  struct Posted {
    Task own;
    const std::function<void()>* callers = nullptr;  // instead of `own`, in run()
    bool* ended = nullptr;                           // in run(): the caller owns this Posted
    Posted* next = nullptr;
  };
  struct Kept {
    std::shared_ptr<void> object;
    MonitorRef running;  // empty if the loop may end
  };
  void modify(Token token, std::uint32_t epoll_events) override;
  void unwatch(Token token) noexcept override;
  void cancel(Token token) noexcept override;
  void add_exit_delay() noexcept override;
  void end_exit_delay() noexcept override;
  void await_exit_delays();
  std::list<Kept>::iterator find_kept(const void* object);
  Status start();
  void stop();
  bool on_thread() const;
  void loop();
  template <typename Handler>
  void attempt(const Handler& handler);
  void tell_failure();
  void destroy_kept_objects();
  void append(Posted* posted);
  void run_posted();
  void run_timers();
  int wait_ms() const;
  void wake();
  static void* thread_main(void* self);

  UniqueFd epoll_;
  UniqueFd wake_;
  pthread_t thread_{};
  Nanos now_ = 0;
  Token next_token_ = 1;
  std::map<Token, Watched> watched_;  // changed under fds_mutex_, which fork() takes
  std::mutex fds_mutex_;
  std::map<std::pair<Nanos, Token>, Task> timers_;
  std::map<Token, Nanos> timer_times_;
  std::list<Kept> kept_;
  std::list<Kept> released_;  // until the end of the round
  Status failure_;            // of a handler, while a client has to be told

  std::mutex posted_mutex_;
  std::condition_variable ended_;
  Posted* first_posted_ = nullptr;
  Posted** posted_end_ = &first_posted_;
  int exit_delays_ = 0;
  bool stopping_ = false;
  bool stopped_ = false;
  // The last reference ended on the monitor thread itself, which cannot join itself.
  bool retiring_ = false;
};

inline EventLoop& MonitorRef::operator*() const { return *loop_; }

/// fork_generation() until the process begins to exit, then another number.
std::uint64_t session_generation();
/// Keeps an object that a forked child must neither use nor destroy.
void abandon(std::shared_ptr<void> of_the_parent);

}  // namespace hocket::internal
