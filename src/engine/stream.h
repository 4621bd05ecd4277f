// A host stream runs tasks in order on its own thread, so that communication overlaps computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "engine/waiters.h"

namespace hocket::internal {

class HostStream {
 public:
  using Task = std::function<Status()>;

  HostStream() = default;
  /// Runs the queued tasks, then ends the thread.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Queues an operation. The first task starts the thread.
  Status push(Task operation);
  /// Queues a task that is no operation, such as the record of an event.
  Status push_mark(std::function<void()> mark);
  /// Blocks until no task is left, including tasks that are pushed meanwhile. Returns the first
  /// error of the tasks since the last call that returned one.
  Status synchronize();
  /// Code::in_progress while tasks are left; else as synchronize().
  Status query();
  /// The result of the last operation that has run; OK if synchronize() or query() has returned
  /// since.
  Status last_result() const;
  /// True in a task of this stream, which must not wait for the stream.
  bool is_current_thread() const;
  /// The threads that wait for this stream, events included. It may outlive the stream.
  const std::shared_ptr<Waiters>& waiters() const { return waiters_; }

 private:
  struct Entry {
    Task task;
    bool is_operation;
  };
  Status add(Entry entry);
  Status start();
  void work();
  Status take_error();

  mutable std::mutex mutex_;
  // drained_ is separate, so that a thread that waits for the last task is not woken by each task:
  // with more threads than cores, a wake-up costs more than a small operation.
  std::condition_variable added_, drained_;
  std::deque<Entry> tasks_;
  bool running_ = false;  // a task is being run
  bool ending_ = false;
  Status error_;        // the first one
  Status last_result_;  // of an operation
  const std::shared_ptr<Waiters> waiters_ = std::make_shared<Waiters>();
  std::thread thread_;
};

/// A point in a stream, for which threads and other streams can wait. Another record() replaces it
/// by a later point.
class Event {
 public:
  /// waiters: those of the stream; null: of none. Returns the number of a new point.
  /// complete(number) is called when the stream reaches it; result: of the operation before it.
  std::uint64_t record(std::shared_ptr<Waiters> waiters);
  void complete(std::uint64_t number, const Status& result);
  std::uint64_t recorded() const;
  /// Code::in_progress until the stream has reached the last recorded point; then the result there.
  Status result() const;
  /// Blocks until the last recorded point. The calling thread counts as one that waits for the
  /// stream.
  void synchronize() const;
  /// The same for an earlier point, without that: for the workers of other streams.
  void await(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::uint64_t recorded_ = 0, completed_ = 0;
  Status result_;  // of the point completed_
  std::shared_ptr<Waiters> waiters_;
};

}  // namespace hocket::internal
