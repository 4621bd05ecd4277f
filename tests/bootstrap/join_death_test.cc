// Ranks die while the others still join.
#include <gtest/gtest.h>

#include <cstring>

#include "base/log.h"
#include "bootstrap/job.h"

namespace hocket::internal {
namespace {

constexpr int came = 0;  // SharedNumbers: the number of ranks that the coordinator knows

/// Counts the log lines of the coordinator about ranks that join.
void count_arrivals(int, const char* line, void* numbers) {
  if (std::strstr(line, "has come") != nullptr) {
    (*static_cast<SharedNumbers*>(numbers))[came].fetch_add(1);
  }
}

struct Death {
  const char* name;
  bool share_memory;
  int victim;  // 0 comes first: with shared memory it leads the node
};
void PrintTo(const Death& c, std::ostream* out) { *out << c.name; }

class DeathWhileJoining : public ::testing::TestWithParam<Death> {};

TEST_P(DeathWhileJoining, is_told_to_all_at_once) {
  const Death& c = GetParam();
  constexpr int ranks = 4;  // the fourth comes when all is over
  Job job(ranks, c.share_memory);
  SharedNumbers numbers;
  Processes processes;
  const auto join_in_vain = [&](int rank) {
    std::shared_ptr<Session> session;
    const Status status = Session::join(job.of(rank), &session);
    EXPECT_EQ(status.code(), Code::remote_error) << status.message();
    EXPECT_EQ(status.culprit(), c.victim) << status.message();
    EXPECT_NE(status.message().find("ended while the ranks were still joining"), std::string::npos)
        << status.message();
  };
  for (int rank = 0; rank < ranks - 1; ++rank) {
    processes.start([&, rank] {
      if (!numbers.reaches(came, rank)) return 1;
      join_in_vain(rank);
      return 0;
    });
  }
  set_log_sink(count_arrivals, &numbers);
  job.start();
  const bool all_came = numbers.reaches(came, ranks - 1);
  processes.signal(c.victim, SIGKILL);
  ASSERT_TRUE(all_came);
  for (int rank = 0; rank < ranks - 1; ++rank) {
    EXPECT_EQ(processes.wait(rank), rank == c.victim ? 1000 + SIGKILL : 0) << "rank " << rank;
  }
  join_in_vain(ranks - 1);
  set_log_sink(nullptr, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Cases, DeathWhileJoining,
                         ::testing::Values(Death{"of_a_rank", true, 2},
                                           Death{"of_a_leader", true, 0},
                                           Death{"of_a_node", false, 1}),
                         [](const auto& info) { return info.param.name; });

TEST(CoordinatorDeath, while_joining_is_told_to_all) {
  Job job(3);
  SharedNumbers numbers;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(rank), &session);
      EXPECT_EQ(status.code(), Code::remote_error) << status.message();
      EXPECT_NE(status.message().find("lost the coordinator at"), std::string::npos)
          << status.message();
      return 0;
    });
  }
  processes.start([&] {
    set_log_sink(count_arrivals, &numbers);
    job.start();
    return numbers.reaches(came, 100) ? 0 : 1;
  });
  job.listener.reset();
  ASSERT_TRUE(numbers.reaches(came, 2));
  processes.signal(2, SIGKILL);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

}  // namespace
}  // namespace hocket::internal
