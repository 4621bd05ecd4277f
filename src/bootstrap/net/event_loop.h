// The event loop on which the state machines of the control plane run. It calls their handlers when
// a descriptor is ready, when a timer has expired, or when another thread has posted a task; and it
// tells them the time. A process has one event loop, its monitor thread (monitor_thread.h); a test
// may run state machines on a loop with a simulated clock (tests/bootstrap/simulated_loop.h).
//
// A handler captures `this` of the object that owns its Watch or Timer: when the Watch or Timer has
// been destroyed, the handler does not run any more. A handler may destroy its own Watch or Timer
// while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/net/task.h"

namespace hocket::internal {

class Watch;
class Timer;
class ExitDelay;

class EventLoop {
 public:
  using Ready = std::function<void(std::uint32_t epoll_events)>;

  /// An object that is told when a handler has thrown, which means that memory has run out.
  class Client {
   public:
    virtual ~Client() = default;
    /// Ends the work that cannot go on, and tells the other ranks as far as there is memory for it.
    /// Returns false, or throws, if it has to be called again.
    virtual bool fail(const Status& why) = 0;
    /// Called when the process ends by exit() or a return from main. The process ends when the last
    /// ExitDelay has been destroyed.
    virtual void process_exits() {}
  };
  /// An object that holds unproved connections, which may be closed when the process needs a
  /// descriptor.
  class DescriptorHolder {
   public:
    virtual ~DescriptorHolder() = default;
    /// Closes a connection that has not sent its hello or, with `any`, any unproved connection.
    /// Returns false if there is none.
    virtual bool spare_descriptor(bool any) = 0;
  };

  EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  virtual ~EventLoop() = default;

  // ---- From any thread
  /// Runs the task on the loop's thread, after the tasks that were posted before. After the loop
  /// has ended, the task is dropped.
  virtual void post(Task task) = 0;
  /// Runs the task on the loop's thread and waits for its end. Runs it in the caller's thread if
  /// that is the loop's thread, or if the loop has ended. Allocates nothing.
  virtual void run(const std::function<void()>& task) = 0;

  // ---- On the loop's thread only
  /// Calls `ready` whenever the descriptor has one of the events (EPOLLIN, EPOLLOUT, ...).
  [[nodiscard]] virtual Watch watch(int fd, std::uint32_t epoll_events, Ready ready) = 0;
  /// Runs the task once, at `when` or soon after it.
  [[nodiscard]] virtual Timer at(Nanos when, Task task) = 0;
  [[nodiscard]] Timer after_ms(std::int64_t ms, Task task);
  /// The time at which this round of the loop began.
  virtual Nanos now() const = 0;

  /// The loop owns the object until release(), and does not end before.
  virtual void keep(std::shared_ptr<void> object) = 0;
  /// From now on the loop may end before the object is released; its end destroys the object.
  virtual void let_loop_end(const void* object) noexcept = 0;
  /// Destroys a kept object at the end of this round, so that the object may release itself.
  virtual void release(const void* object) noexcept = 0;

  void add(Client* client) { clients_.push_back(client); }
  void remove(Client* client) { std::erase(clients_, client); }
  void add(DescriptorHolder* holder) { holders_.push_back(holder); }
  void remove(DescriptorHolder* holder) { std::erase(holders_, holder); }
  /// Closes one unproved connection; returns false if there is none.
  bool spare_descriptor();
  /// The number of unproved connections on this loop.
  std::size_t unproved_connections = 0;

 protected:
  using Token = std::uint64_t;  // identifies a watch or a timer; 0: none
  /// Returns false if a client has to be told again.
  bool tell_clients(const Status& failure);
  void tell_clients_of_exit();

 private:
  friend class Watch;
  friend class Timer;
  friend class ExitDelay;
  virtual void modify(Token token, std::uint32_t epoll_events) = 0;
  virtual void unwatch(Token token) noexcept = 0;
  virtual void cancel(Token token) noexcept = 0;
  virtual void add_exit_delay() noexcept = 0;
  virtual void end_exit_delay() noexcept = 0;

  std::vector<Client*> clients_;
  std::vector<DescriptorHolder*> holders_;
};

/// A watched descriptor. The loop must outlive it; the descriptor is closed after it.
class [[nodiscard]] Watch {
 public:
  Watch() = default;
  Watch(EventLoop& loop, std::uint64_t token) : loop_(&loop), token_(token) {}
  Watch(Watch&& other) noexcept
      : loop_(std::exchange(other.loop_, nullptr)), token_(other.token_) {}
  Watch& operator=(Watch&& other) noexcept {
    std::swap(loop_, other.loop_);
    std::swap(token_, other.token_);
    other.reset();
    return *this;
  }
  ~Watch() { reset(); }
  void modify(std::uint32_t epoll_events) {
    if (loop_ != nullptr) loop_->modify(token_, epoll_events);
  }
  void reset() noexcept {
    if (EventLoop* const loop = std::exchange(loop_, nullptr)) loop->unwatch(token_);
  }

 private:
  EventLoop* loop_ = nullptr;
  std::uint64_t token_ = 0;
};

/// A task that waits for its time. The loop must outlive it.
class [[nodiscard]] Timer {
 public:
  Timer() = default;
  Timer(EventLoop& loop, std::uint64_t token) : loop_(&loop), token_(token) {}
  Timer(Timer&& other) noexcept
      : loop_(std::exchange(other.loop_, nullptr)), token_(other.token_) {}
  Timer& operator=(Timer&& other) noexcept {
    std::swap(loop_, other.loop_);
    std::swap(token_, other.token_);
    other.reset();
    return *this;
  }
  ~Timer() { reset(); }
  void reset() noexcept {
    if (EventLoop* const loop = std::exchange(loop_, nullptr)) loop->cancel(token_);
  }

 private:
  EventLoop* loop_ = nullptr;
  std::uint64_t token_ = 0;
};

/// While it exists, the exit of the process waits. Made by a Client's process_exits(). The loop
/// must outlive it.
class [[nodiscard]] ExitDelay {
 public:
  explicit ExitDelay(EventLoop& loop) : loop_(loop) { loop_.add_exit_delay(); }
  ExitDelay(const ExitDelay&) = delete;
  ExitDelay& operator=(const ExitDelay&) = delete;
  ~ExitDelay() { loop_.end_exit_delay(); }

 private:
  EventLoop& loop_;
};

inline Timer EventLoop::after_ms(std::int64_t ms, Task task) {
  return at(now() + ms * nanos_per_ms, std::move(task));
}

}  // namespace hocket::internal
