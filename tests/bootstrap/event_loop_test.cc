#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "bootstrap/job.h"
#include "bootstrap/net/monitor_thread.h"
#include "sanitized.h"
#include "threads.h"

namespace hocket::internal {
namespace {

TEST(EventLoop, ends_whenever_its_last_reference_does) {
  tests::await_end_of_threads();
  int ran = 0;
  // stop() comes at every point of a round that a task woke: the thread must not fall asleep.
  constexpr int times = tests::sanitized ? 2000 : 10'000;
  for (int i = 0; i < times; ++i) {
    MonitorRef lease;
    ASSERT_TRUE(MonitorRef::take(&lease).ok());
    lease->run([&ran] { ++ran; });
    lease->post([&ran] { ++ran; });
    const Nanos end = monotonic_now() + i % 200 * 100;
    while (monotonic_now() < end) continue;
  }
  EXPECT_EQ(2 * times, ran) << "what was posted before the end runs";
}

TEST(EventLoop, starts_anew_for_references_of_several_threads) {
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ran] {
      for (int i = 0; i < 2000; ++i) {
        MonitorRef lease;
        ASSERT_TRUE(MonitorRef::take(&lease).ok());
        lease->run([&ran] { ran.fetch_add(1); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(8000, ran.load());
}

}  // namespace
}  // namespace hocket::internal
