// A lock that a thread tries to take and never waits for, and that costs the thread that uses it
// most no locked instruction. Such an instruction waits until other cores have all that the thread
// stored before, which took a tenth of the time of a call of 8 bytes in shared memory.
//
// The first thread that takes the lock has its bias: it only sets a word of its own, and looks at
// the word of the other threads. Another thread exchanges the latter word, makes membarrier(2) put
// a fence into each thread of the process, and looks at the former word. Either the thread with the
// bias set its word before the fence, and the other thread sees that; or it looks after the fence,
// and sees the word of the other threads. When other threads have taken the lock a few times, the
// bias ends for good, and all threads exchange the word. tests/base/biased_lock.pml is the model
// for the model checker.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace hocket::internal {

class BiasedLock {
 public:
  /// What try_lock() gave to its thread: no lock; the lock, to the thread that has the bias; the
  /// lock, by an exchange of held_.
  enum class Hold : std::uint8_t { none, biased, exchanged };

  /// none: a thread holds the lock, which may be this thread. If two threads try at the same time,
  /// both may get none.
  Hold try_lock() {
    const auto self = reinterpret_cast<std::uintptr_t>(::pthread_self());
    if (biased_to_.load(std::memory_order_relaxed) != self) return exchange(self);
    if (held_by_bias_.load(std::memory_order_acquire)) return Hold::none;
    held_by_bias_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the processor's fence is membarrier
    const bool has_bias = biased_to_.load(std::memory_order_relaxed) == self;
    if (has_bias && !held_.load(std::memory_order_acquire)) [[likely]]
      return Hold::biased;
    held_by_bias_.store(false, std::memory_order_release);
    return has_bias ? Hold::none : exchange(self);
  }
  /// hold: what try_lock() returned to this thread.
  void unlock(Hold hold) {
    if (hold == Hold::biased) held_by_bias_.store(false, std::memory_order_release);
    if (hold == Hold::exchanged) held_.store(false, std::memory_order_release);
  }

 private:
  // How often other threads take the lock before the bias ends. Each time costs a membarrier, which
  // interrupts the threads of the process.
  static constexpr unsigned most_against_bias = 8;
  // Instead of a thread, in biased_to_. No thread has these addresses.
  static constexpr std::uintptr_t unused = 0, ended = 1;

  Hold exchange(std::uintptr_t self);

  std::atomic<std::uintptr_t> biased_to_{unused};
  std::atomic<bool> held_by_bias_{false}, held_{false};
  unsigned against_bias_ = 0;  // of the thread that has set held_
};

}  // namespace hocket::internal
