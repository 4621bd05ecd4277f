// The collectives of an engine: the collective under way, the calls that wait for it, in their
// order, and the number of the last collective that has begun.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/assert.h"
#include "engine/call.h"
#include "engine/operation.h"

namespace hocket::internal {

class CollectiveOperations {
 public:
  /// A call that waits.
  struct Queued {
    Call call;
    Work* work;
  };

  /// True while a collective is under way.
  bool running() const { return running_; }
  bool empty() const { return calls_ == 0; }
  /// True if no collective is under way, and a call waits.
  bool next_is_due() const { return !running_ && !queue_.empty(); }
  /// The collective under way, or the last one.
  Operation& current() { return current_; }
  const std::deque<Queued>& queue() const { return queue_; }
  /// The number of the last collective that has begun; 0: none. Any thread.
  std::uint64_t begun() const { return begun_.load(std::memory_order_relaxed); }

  void add(const Call& call, Work* work) {
    queue_.push_back({call, work});
    ++calls_;
  }
  /// Removes and returns the first call of the queue.
  Queued take() {
    const Queued first = queue_.front();
    queue_.pop_front();
    --calls_;
    return first;
  }
  /// Begins a collective, which current() is from now on. Returns its number.
  std::uint64_t begin(Work* work) {
    HOCKET_ASSERT(!running_, "collectives run one after another");
    current_.reset(work);
    const std::uint64_t number = begun() + 1;
    begun_.store(number, std::memory_order_relaxed);
    running_ = true;
    ++calls_;
    return number;
  }
  /// The collective under way has ended.
  void end() {
    running_ = false;
    --calls_;
  }
  void clear() {
    running_ = false;
    calls_ = 0;
    queue_.clear();
  }

 private:
  Operation current_;
  bool running_ = false;  // current_ is under way
  std::deque<Queued> queue_;
  std::size_t calls_ = 0;  // under way and in the queue
  std::atomic<std::uint64_t> begun_ = 0;
};

}  // namespace hocket::internal
