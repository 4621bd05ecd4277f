// What a forked child has of its parent's library: nothing.
#include "api/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

namespace hocket::internal::api {
namespace {

constexpr unsigned alarm_s = 60;  // a child that still runs then waits for ever: SIGALRM ends it

/// True where body() is true in a child.
bool holds_in_a_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(alarm_s);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(child, ::waitpid(child, &status, 0));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ForkedChild, refuses_its_parents_streams_and_events_and_makes_its_own) {
  hocketStream_t stream = nullptr;
  hocketEvent_t event = nullptr;
  ASSERT_EQ(hocketSuccess, hocketStreamCreate(&stream));
  ASSERT_EQ(hocketSuccess, hocketEventCreate(&event));
  ASSERT_EQ(hocketSuccess, hocketEventRecord(event, stream));
  EXPECT_TRUE(holds_in_a_child([&] {
    hocketStream_t own = nullptr;
    return hocketStreamSynchronize(stream) == hocketInvalidArgument &&
           hocketEventSynchronize(event) == hocketInvalidArgument &&
           hocketStreamDestroy(stream) == hocketInvalidArgument &&
           hocketStreamCreate(&own) == hocketSuccess && hocketStreamDestroy(own) == hocketSuccess;
  }));
  EXPECT_EQ(hocketSuccess, hocketEventSynchronize(event));
  EXPECT_EQ(hocketSuccess, hocketEventDestroy(event));
  EXPECT_EQ(hocketSuccess, hocketStreamDestroy(stream));
}

TEST(ForkedChild, cannot_free_its_parents_memory) {
  constexpr std::size_t bytes = 8192;
  void* memory = nullptr;
  ASSERT_EQ(hocketSuccess, hocketMemAlloc(&memory, bytes));
  std::memset(memory, 7, bytes);
  EXPECT_TRUE(holds_in_a_child([&] {
    void* own = nullptr;
    return hocketMemFree(memory) == hocketInvalidArgument &&
           hocketMemAlloc(&own, bytes) == hocketSuccess && hocketMemFree(own) == hocketSuccess;
  }));
  const std::string sevens(bytes, 7);
  EXPECT_EQ(0, std::memcmp(sevens.data(), memory, bytes)) << "the child gave the pages back";
  EXPECT_EQ(hocketSuccess, hocketMemFree(memory));
}

TEST(ForkedChild, does_not_wait_for_locks_of_its_parents_threads) {
  Process::current().shared.group_order.lock();
  EXPECT_TRUE(holds_in_a_child([] { return Process::current().shared.group_order.try_lock(); }));
  EXPECT_FALSE(Process::current().shared.group_order.try_lock());
  Process::current().shared.group_order.unlock();
}

struct Callback {
  std::atomic<int> lines{0};
  std::atomic<bool> inside{false}, leave{false};
  static void call(int, const char*, void* user) {
    auto& self = *static_cast<Callback*>(user);
    ++self.lines;
    self.inside = true;
    self.inside.notify_all();
    self.leave.wait(false);
  }
};

/// Logs that the variable is not known.
hocketResult_t log_a_line() {
  hocketUniqueId id;
  return hocketGetUniqueId(&id);
}

TEST(ForkedChild, logs_though_a_thread_of_its_parent_was_inside_the_callback) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow a fork of several threads";
#endif
  Callback callback;
  ASSERT_EQ(hocketSuccess, hocketSetLogCallback(Callback::call, &callback));
  ::setenv("HOCKET_UNKNOWN", "1", 1);
  std::thread thread([] { EXPECT_EQ(hocketInvalidUsage, log_a_line()); });
  callback.inside.wait(false);
  EXPECT_TRUE(holds_in_a_child([&] {
    callback.leave = true;  // the child's copy
    return log_a_line() == hocketInvalidUsage && callback.lines == 2;
  }));
  callback.leave = true;
  callback.leave.notify_all();
  thread.join();
  EXPECT_EQ(1, callback.lines);
  ::unsetenv("HOCKET_UNKNOWN");
  ASSERT_EQ(hocketSuccess, hocketSetLogCallback(nullptr, nullptr));
}

}  // namespace
}  // namespace hocket::internal::api
