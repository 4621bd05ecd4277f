#include "base/biased_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace hocket::internal {
namespace {

using Hold = BiasedLock::Hold;

/// What a thread that ends at once gets. It releases the lock.
Hold try_in_other_thread(BiasedLock& lock) {
  Hold hold = Hold::none;
  std::thread([&] {
    hold = lock.try_lock();
    lock.unlock(hold);
  }).join();
  return hold;
}

TEST(BiasedLock, a_thread_that_has_it_does_not_get_it_again) {
  BiasedLock lock;
  for (int i = 0; i < 3; ++i) {
    const Hold hold = lock.try_lock();
    EXPECT_NE(Hold::none, hold);
    EXPECT_EQ(Hold::none, lock.try_lock());
    lock.unlock(hold);
  }
}

TEST(BiasedLock, the_first_thread_has_the_bias_until_others_have_taken_the_lock_often) {
  BiasedLock lock;
  lock.unlock(lock.try_lock());
  const Hold hold = lock.try_lock();
  EXPECT_EQ(Hold::none, try_in_other_thread(lock));
  lock.unlock(hold);
  int taken = 0;
  for (; lock.try_lock() == Hold::biased && taken < 100; ++taken) {
    lock.unlock(Hold::biased);
    EXPECT_EQ(Hold::exchanged, try_in_other_thread(lock));
  }
  EXPECT_EQ(9, taken);
  // The last try got the lock by the exchange.
  EXPECT_EQ(Hold::none, try_in_other_thread(lock));
  lock.unlock(Hold::exchanged);
  EXPECT_EQ(Hold::exchanged, try_in_other_thread(lock));
}

TEST(BiasedLock, the_thread_with_the_bias_does_not_get_it_while_another_thread_has_it) {
  BiasedLock lock;
  lock.unlock(lock.try_lock());
  std::atomic<bool> held{false}, ends{false};
  std::thread other([&] {
    const Hold hold = lock.try_lock();
    EXPECT_EQ(Hold::exchanged, hold);
    held = true;
    held.notify_one();
    ends.wait(false);
    lock.unlock(hold);
  });
  held.wait(false);
  EXPECT_EQ(Hold::none, lock.try_lock());
  ends = true;
  ends.notify_one();
  other.join();
  EXPECT_EQ(Hold::biased, lock.try_lock());
}

/// In each round other threads take the lock until the bias has ended, beside the thread that has
/// the bias. The counter is not atomic, so that the thread sanitizer reports two threads that hold
/// the lock at the same time.
TEST(BiasedLock, no_two_threads_have_it_at_the_same_time) {
  constexpr int rounds = 200, others = 2;
  for (int round = 0; round < rounds; ++round) {
    BiasedLock lock;
    std::uint64_t counter = 0;
    std::atomic<std::uint64_t> held{0};
    const auto take = [&](int times) {
      for (int taken = 0; taken < times;) {
        const Hold hold = lock.try_lock();
        if (hold == Hold::none) {
          std::this_thread::yield();
          continue;
        }
        ++counter;
        held.fetch_add(1, std::memory_order_relaxed);
        ++taken;
        lock.unlock(hold);
      }
    };
    take(2);
    std::vector<std::thread> threads;
    for (int i = 0; i < others; ++i) threads.emplace_back(take, 40);
    take(2000);
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(held.load(), counter);
  }
}

}  // namespace
}  // namespace hocket::internal
