// A host stream: tasks in order, on a thread of its own, so that communication overlaps
// computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace hocket::internal {

class HostStream {
 public:
  using Task = std::function<Status()>;

  HostStream() = default;
  /// Runs what is queued, then ends the thread.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Starts the thread at the first task.
  Status push(Task task);
  /// Blocks until no task is left; those pushed meanwhile count too. The first error among them,
  /// told once.
  Status synchronize();
  /// in_progress while tasks are left, else as synchronize().
  Status query();
  /// The first error of the tasks before that has not been told yet; it stays to be told.
  Status error() const;
  /// True in a task of this stream: to wait for it there would never end.
  bool is_current_thread() const;

 private:
  Status start();
  void work();
  Status take_error();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool running_ = false;  // a task is being run
  bool ending_ = false;
  Status error_;
  std::thread thread_;
};

/// A point in a stream that others wait for. Recorded anew, it means the later point.
class Event {
 public:
  /// Numbers the point; complete(number) says that it has been reached, and with which error of
  /// the stream's.
  std::uint64_t record();
  void complete(std::uint64_t number, const Status& error);
  std::uint64_t recorded() const;
  /// in_progress until the last recorded point has been reached, then its error.
  Status result() const;
  void await(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::uint64_t recorded_ = 0, completed_ = 0;
  Status error_;  // of the point completed_
};

}  // namespace hocket::internal
