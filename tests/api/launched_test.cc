// hocketCommInitFromEnv under hocket-run, which starts this program again as its ranks.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "matrix/ranks.h"

namespace {

/// A rank is one process: where one has joined, a child of it cannot.
void expect_that_a_child_is_refused() {
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

TEST(Launched, ranks_make_communicators_from_their_environment) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  for (const char* transport : {"shm", "tcp"}) {
    for (int ranks : {1, 3}) {
      const std::string command =
          "LAUNCHED_RANKS=" + std::to_string(ranks) + " HOCKET_TRANSPORT=" + transport + " '" +
          (self.parent_path() / "hocket-run").string() + "' -n " + std::to_string(ranks) + " '" +
          self.string() + "' --gtest_filter='LaunchedRank.*'";
      EXPECT_EQ(0, std::system(command.c_str())) << command;
    }
  }
}

}  // namespace
