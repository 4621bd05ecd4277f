#include "engine/stream.h"

#include <pthread.h>
#include <signal.h>

#include <optional>
#include <system_error>

#include "engine/wait.h"

namespace hocket::internal {

HostStream::~HostStream() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  added_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Status HostStream::start() {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    return {Code::system_error, std::string("cannot start a stream's thread: ") + error.what()};
  }
  return {};
}

Status HostStream::push(Task operation) { return add({std::move(operation), true}); }

Status HostStream::push_mark(std::function<void()> mark) {
  return add({[mark = std::move(mark)] {
                mark();
                return Status();
              },
              false});
}

Status HostStream::add(Entry entry) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    // The worker blocks all signals: the user's signal handlers run on the user's threads.
    sigset_t all, old;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &old);
    const Status started = status_of_call([this] { return start(); });
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
    HOCKET_RETURN_IF_ERROR(started);
    ::pthread_setname_np(thread_.native_handle(), "hocket-stream");
  }
  tasks_.push_back(std::move(entry));
  if (tasks_.size() == 1 && !running_) added_.notify_one();
  return {};
}

void HostStream::work() {
  driven_for = waiters_.get();
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Entry entry = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = true;
    lock.unlock();
    const Status status = status_of_call(entry.task);
    entry.task = nullptr;
    lock.lock();
    running_ = false;
    if (error_.ok()) error_ = status;
    if (entry.is_operation) last_result_ = status;
    if (tasks_.empty()) drained_.notify_all();
  }
}

Status HostStream::take_error() {
  last_result_ = {};
  return std::exchange(error_, Status());
}

Status HostStream::synchronize() {
  const Waiters::Scope waits(*waiters_);
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [this] { return tasks_.empty() && !running_; });
  return take_error();
}

Status HostStream::query() {
  std::lock_guard lock(mutex_);
  if (!tasks_.empty() || running_) {
    waiters_->ask();
    return {Code::in_progress, "the stream still has work"};
  }
  return take_error();
}

Status HostStream::last_result() const {
  std::lock_guard lock(mutex_);
  return last_result_;
}

bool HostStream::is_current_thread() const {
  std::lock_guard lock(mutex_);
  return thread_.get_id() == std::this_thread::get_id();
}

std::uint64_t Event::record(std::shared_ptr<Waiters> waiters) {
  std::lock_guard lock(mutex_);
  waiters_ = std::move(waiters);
  return ++recorded_;
}

void Event::complete(std::uint64_t number, const Status& result) {
  std::lock_guard lock(mutex_);
  if (number > completed_) {
    completed_ = number;
    result_ = result;
  }
  changed_.notify_all();
}

std::uint64_t Event::recorded() const {
  std::lock_guard lock(mutex_);
  return recorded_;
}

Status Event::result() const {
  std::lock_guard lock(mutex_);
  if (completed_ < recorded_ && waiters_ != nullptr) waiters_->ask();
  if (completed_ < recorded_) return {Code::in_progress, "the event has not been reached"};
  return result_;
}

void Event::synchronize() const {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = recorded_;
  const std::shared_ptr<Waiters> waiters = waiters_;
  std::optional<Waiters::Scope> waits;
  if (waiters != nullptr) waits.emplace(*waiters);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

void Event::await(std::uint64_t number) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

}  // namespace hocket::internal
