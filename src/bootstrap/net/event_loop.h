// The process's one monitor thread: it sleeps in epoll and runs whatever became ready. Everything
// else in this folder is a state machine on it; locks guard only what other threads share with it.
//
// It starts with the first lease and ends with the last one (or at exit). It blocks all signals. In
// a forked child it does not exist: the child closes its copies of the watched descriptors (so that
// they cannot keep a connection of the parent alive) and touches nothing else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/fork.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace hocket::internal {

class EventLoop : public std::enable_shared_from_this<EventLoop> {
 public:
  using Task = std::function<void()>;
  using Ready = std::function<void(std::uint32_t epoll_events)>;
  using Token = std::uint64_t;  // 0: none

  /// Whoever must know that a handler threw, which is to say: that memory is out.
  class Client {
   public:
    virtual ~Client() = default;
    /// Ends what cannot go on, and tells others as far as there is memory for it: false where it
    /// wants to try again. May throw: the same.
    virtual bool fail(const Status& why) = 0;
  };
  /// Whoever accepts connections, and so holds descriptors that can be spared.
  class Spender {
   public:
    virtual ~Spender() = default;
    /// Closes one that has not said hello or, with `any`, another one; false where it has none.
    virtual bool spare_descriptor(bool any) = 0;
  };

  // ---- From any thread
  /// Runs task on the monitor thread, in the order of the calls. Dropped once it has stopped.
  void post(Task task);
  /// The same, and waits for it; runs it at once where this is the monitor thread, or where there
  /// is none any more.
  void run(const Task& task);  // allocates nothing
  bool on_thread() const;

  // ---- On the monitor thread only. A handler does not run after its unwatch() or cancel().
  Token watch(int fd, std::uint32_t epoll_events, Ready ready);
  void modify(Token token, std::uint32_t epoll_events);
  void unwatch(Token token);
  Token at(Nanos when, Task task);  // once
  Token after_ms(std::int64_t ms, Task task) {
    return at(now_ + ms * nanos_per_ms, std::move(task));
  }
  void cancel(Token token);
  /// Runs task when the process ends in order (exit, return from main) while the thread runs.
  Token on_exit(Task task);
  void cancel_exit(Token token);
  void add(Client* client) { clients_.push_back(client); }
  void remove(Client* client) { std::erase(clients_, client); }
  void add(Spender* spender) { spenders_.push_back(spender); }
  void remove(Spender* spender) { std::erase(spenders_, spender); }
  /// Closes one descriptor of a connection that has proved nothing; false where there is none.
  bool spare_descriptor();
  /// Connections that have proved nothing, in this process.
  std::size_t strangers = 0;
  /// When this round of the loop woke.
  Nanos now() const { return now_; }

 private:
  friend class EventLoopRef;
  friend struct EventLoopGlobals;
  struct Watched {
    int fd;
    std::uint32_t events;
    std::shared_ptr<Ready> ready;
  };
  struct Posted {
    Task own;
    const Task* task = &own;
    bool* ended = nullptr;  // somebody waits for it: then the node is the waiter's
    Posted* next = nullptr;
  };
  Status start();
  void stop();
  void loop();
  template <typename Handler>
  void attempt(const Handler& handler);
  void tell_clients();
  void let_go();
  void append(Posted* posted);
  void run_posted();
  void run_timers();
  void run_exit_tasks();
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
  std::map<Token, Task> exit_tasks_;
  std::vector<Client*> clients_;
  std::vector<Spender*> spenders_;
  Status failure_;  // of a handler, which a client still has to be told

  std::mutex posted_mutex_;
  std::condition_variable ended_;
  Posted* first_posted_ = nullptr;
  Posted** posted_end_ = &first_posted_;
  bool stopping_ = false;
  bool stopped_ = false;
  bool retiring_ = false;  // on the thread only: nobody joins it
};

/// Keeps the monitor running.
class EventLoopRef {
 public:
  EventLoopRef() = default;
  /// *out is empty before.
  static Status take(EventLoopRef* out);
  /// False where no monitor runs.
  static bool take_running(EventLoopRef* out);
  EventLoopRef(EventLoopRef&& other) noexcept
      : loop_(std::move(other.loop_)), generation_(other.generation_) {}
  EventLoopRef& operator=(EventLoopRef&& other) noexcept;
  ~EventLoopRef() { release(); }
  void release();
  EventLoop& operator*() const { return *loop_; }
  EventLoop* operator->() const { return loop_.get(); }
  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  explicit operator bool() const { return loop_ != nullptr; }

 private:
  void take_current();
  std::shared_ptr<EventLoop> loop_;
  std::uint64_t generation_ = 0;
};

/// fork_generation(), and another number from the beginning of the process's exit on.
std::uint64_t session_generation();
/// Keeps what a forked child must neither use nor destroy.
void abandon(std::shared_ptr<void> of_the_parent);

}  // namespace hocket::internal
