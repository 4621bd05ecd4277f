// Ranks that die while the others still join.
#include <gtest/gtest.h>

#include "bootstrap/job.h"

namespace hocket {
namespace {

constexpr int asked = 0;  // SharedNumbers: ranks that have reached the root or their leader

struct Case {
  const char* name;
  bool share_memory;
  int victim;  // 0 comes first: with shared memory it leads the node
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class DeathWhileJoining : public ::testing::TestWithParam<Case> {};

TEST_P(DeathWhileJoining, is_told_to_all_at_once) {
  const Case& c = GetParam();
  constexpr int ranks = 4;  // the fourth never comes
  Job job(ranks, c.share_memory);
  SharedNumbers numbers;
  Processes processes;
  for (int rank = 0; rank < ranks - 1; ++rank) {
    processes.start([&, rank] {
      if (!numbers.reaches(asked, rank)) return 1;
      std::thread tell([&] {
        // join() gives no sign on its way. Far more than a connection takes; a test that is late
        // sees the error of the other order, which it accepts too.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        numbers[asked].fetch_add(1);
      });
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(rank), &session);
      tell.join();
      EXPECT_EQ(status.code(), Code::remote_error) << status.message();
      EXPECT_EQ(status.culprit(), c.victim) << status.message();
      EXPECT_NE(status.message().find("ended while the ranks were still joining"),
                std::string::npos)
          << status.message();
      return 0;
    });
  }
  job.start();
  ASSERT_TRUE(numbers.reaches(asked, ranks - 1));
  processes.signal(c.victim, SIGKILL);
  for (int rank = 0; rank < ranks - 1; ++rank) {
    EXPECT_EQ(processes.wait(rank), rank == c.victim ? 1000 + SIGKILL : 0) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeathWhileJoining,
                         ::testing::Values(Case{"of_a_rank", true, 2}, Case{"of_a_leader", true, 0},
                                           Case{"of_a_node", false, 1}),
                         [](const auto& info) { return info.param.name; });

TEST(RootDeath, while_joining_is_told_to_all) {
  Job job(3);
  SharedNumbers numbers;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      std::thread tell([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        numbers[asked].fetch_add(1);
      });
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(rank), &session);
      tell.join();
      EXPECT_EQ(status.code(), Code::remote_error) << status.message();
      EXPECT_NE(status.message().find("lost the root at"), std::string::npos) << status.message();
      return 0;
    });
  }
  processes.start([&] {
    job.start();
    return numbers.reaches(asked, 100) ? 0 : 1;
  });
  job.listener.reset();
  ASSERT_TRUE(numbers.reaches(asked, 2));
  processes.signal(2, SIGKILL);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

}  // namespace
}  // namespace hocket
