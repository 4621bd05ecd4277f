// hocketCommInitFromEnv under hocket-run, which starts this program again as its ranks.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#include "matrix/ranks.h"

namespace {

/// After the last communicator of a process is destroyed, the monitor thread ends a moment later.
/// If the process forks while that thread allocates memory, the child waits for ever for a lock of
/// the address sanitizer's allocator.
void wait_until_other_threads_have_ended() {
  constexpr int most_waits = 1000;  // the thread sanitizer has a thread that stays
  for (int i = 0; i < most_waits; ++i) {
    const std::filesystem::directory_iterator threads("/proc/self/task");
    if (std::distance(begin(threads), end(threads)) == 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// A rank is one process: where one has joined, a child of it cannot.
void expect_that_a_child_is_refused() {
  if (ranks::sanitized) wait_until_other_threads_have_ended();
  const pid_t child = ::fork();
  if (child == 0) {
    hocketComm_t none = nullptr;
    const bool refused =
        hocketCommInitFromEnv(&none, nullptr) == hocketInvalidUsage &&
        std::string(hocketGetLastError(nullptr)).find("forked from rank") != std::string::npos;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// Runs in each rank; skipped in an ordinary run.
TEST(LaunchedRank, joins_its_job_as_often_as_it_asks) {
  if (std::getenv("LAUNCHED_RANKS") == nullptr) GTEST_SKIP() << "a rank of the test below";
  const int ranks = std::atoi(std::getenv("LAUNCHED_RANKS"));
  hocketComm_t first = nullptr, second = nullptr;
  ASSERT_HOCKET(hocketCommInitFromEnv(&first, nullptr));
  ASSERT_HOCKET(hocketCommInitFromEnv(&second, nullptr));
  for (hocketComm_t comm : {first, second, first}) {
    int sum = 1, count = 0;
    EXPECT_HOCKET(hocketCommCount(comm, &count));
    EXPECT_EQ(ranks, count);
    EXPECT_HOCKET(hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, comm, nullptr));
    EXPECT_EQ(ranks, sum);
  }
  EXPECT_HOCKET(hocketCommDestroy(first));
  int sum = 1;
  EXPECT_HOCKET(hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, second, nullptr));
  EXPECT_EQ(ranks, sum);
  EXPECT_HOCKET(hocketCommDestroy(second));
  expect_that_a_child_is_refused();
  // And once more, after all had been left.
  ASSERT_HOCKET(hocketCommInitFromEnv(&first, nullptr));
  EXPECT_HOCKET(hocketBarrier(first, nullptr));
  EXPECT_HOCKET(hocketCommDestroy(first));
}

int run_ranks_with(int ranks, const std::string& transport, const std::string& before) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      before + "LAUNCHED_RANKS=" + std::to_string(ranks) + " HOCKET_TRANSPORT=" + transport + " '" +
      (self.parent_path() / "hocket-run").string() + "' -n " + std::to_string(ranks) + " '" +
      self.string() + "' --gtest_filter='LaunchedRank.*'";
  return std::system(command.c_str());
}

TEST(Launched, ranks_make_communicators_from_their_environment) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int ranks : {1, 3}) {
      EXPECT_EQ(0, run_ranks_with(ranks, transport, "")) << ranks << " ranks over " << transport;
    }
  }
}

/// Containers often have a /dev/shm of 64 MiB or less. Here it has a page, which is full.
TEST(Launched, ranks_need_nothing_of_dev_shm) {
  const std::string root = "unshare --user --map-root-user --mount ";
  const std::string fill =
      "mount -t tmpfs -o size=4k none /dev/shm && "
      "dd if=/dev/zero of=/dev/shm/full bs=4k count=1 status=none";
  if (std::system((root + "sh -c '" + fill + "' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "this user may not mount";
  }
  EXPECT_EQ(0, run_ranks_with(3, "shm", root + "sh -c '" + fill + " && exec \"$@\"' sh env "));
}

}  // namespace
