// No process remains, whichever process of a job is killed, and at whatever time.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <random>

#include "launcher/job.h"
#include "seed.h"

namespace hocket::internal::launch_test {
namespace {

// A rank with children; one of them has left the process group and the session of the rank.
const char* const family = "sleep 1000 & setsid sleep 1000 & echo ready; wait";
const char* const stubborn_family =
    "trap '' TERM HUP INT; sleep 1000 & setsid sleep 1000 & echo ready; wait";

enum class Victim { launcher, supervisor, agent };
const char* const victim_names[] = {"launcher", "supervisor", "agent"};

pid_t only_child_of(pid_t parent) {
  const std::vector<pid_t> children = children_of(parent);
  return children.empty() ? 0 : children.front();
}

pid_t find(const Job& job, Victim victim) {
  if (victim == Victim::launcher) return job.pid();
  const pid_t supervisor = only_child_of(job.pid());
  if (victim == Victim::supervisor || supervisor == 0) return supervisor;
  return only_child_of(supervisor);
}

void kill_and_expect_nothing_left(Job& job, Victim victim) {
  pid_t pid = 0;
  ASSERT_TRUE(eventually([&] { return (pid = find(job, victim)) != 0; }));
  ::kill(pid, SIGKILL);
  job.finish();
  EXPECT_TRUE(job.all_gone()) << victim_names[static_cast<int>(victim)];
  if (victim == Victim::launcher) {
    EXPECT_EQ(job.status, -SIGKILL);
  } else {
    EXPECT_NE(job.status, 0);
    EXPECT_NE(job.err.find("hocket-run: "), std::string::npos) << job.err;
  }
}

TEST(Killed, nothing_is_left_of_a_running_job) {
  for (const Victim victim : {Victim::launcher, Victim::supervisor, Victim::agent}) {
    for (const char* script : {family, stubborn_family}) {
      Job job({"-n", "3", "sh", "-c", script});
      ASSERT_TRUE(job.wait_for("ready\nready\nready\n"));
      kill_and_expect_nothing_left(job, victim);
    }
  }
}

TEST(Killed, nothing_is_left_at_any_moment) {
  std::mt19937_64 random(tests::seed());
  for (int round = 0; round < 30; ++round) {
    Job job({"-n", "4", "sh", "-c", family});
    ::usleep(random() % 40'000);  // kill at a random time
    kill_and_expect_nothing_left(job, static_cast<Victim>(random() % 3));
  }
}

TEST(Killed, an_agent_that_dies_counts_as_the_death_of_its_ranks) {
  Job job({"-n", "2", "sh", "-c", family});
  ASSERT_TRUE(job.wait_for("ready\nready\n"));
  ::kill(find(job, Victim::agent), SIGKILL);
  job.finish();
  EXPECT_EQ(job.status, 137);
  EXPECT_NE(job.err.find("its ranks (0-1) are ended"), std::string::npos) << job.err;
}

TEST(Killed, a_request_to_end_the_agent_ends_the_ranks_in_order) {
  for (const Victim victim : {Victim::supervisor, Victim::agent}) {
    Job job({"-n", "2", "sh", "-c",
             "trap 'echo bye; exit 0' TERM; echo ready; "
             "while :; do sleep 0.01; done"});
    ASSERT_TRUE(job.wait_for("ready\nready\n"));
    ::kill(find(job, victim), SIGTERM);
    job.finish();
    EXPECT_EQ(job.out, "ready\nready\nbye\nbye\n");
    EXPECT_EQ(job.status, 0) << job.err;
  }
}

}  // namespace
}  // namespace hocket::internal::launch_test
