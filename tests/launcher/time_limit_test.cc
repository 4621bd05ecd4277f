// hocket-run --timeout.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using Words = std::vector<std::string>;

TEST(TimeLimit, ends_the_ranks_with_a_status_of_its_own) {
  const Result result = run({"-n", "2", "--timeout", "0.5", "sleep", "1000"});
  EXPECT_EQ(result.status, 124);
  const Words lines = lines_of(result.err);
  ASSERT_EQ(lines.size(), 2u) << result.err;
  EXPECT_EQ(lines[0],
            "hocket-run: the job has not ended within 0.5 s (--timeout); ending all ranks");
  EXPECT_EQ(lines[1], "hocket-run: other failures: ranks 0-1 were killed by hocket-run (SIGTERM)");
}

TEST(TimeLimit, lets_ranks_clean_up_and_kills_those_that_do_not_end) {
  const Result result = run({"-n", "2", "-timeout", "1", "--on-death=continue", "sh", "-c",
                             "[ $HOCKET_RANK = 0 ] && trap 'echo cleaned up; exit 0' TERM || "
                             "trap '' TERM; while :; do sleep 0.01; done"});
  EXPECT_EQ(result.status, 124) << result.err;
  EXPECT_EQ(result.out, "cleaned up\n");
  EXPECT_NE(result.err.find("was killed by hocket-run (SIGKILL)"), std::string::npos) << result.err;
}

TEST(TimeLimit, changes_nothing_for_a_job_that_ends_before) {
  const Result good = run({"-n", "2", "--timeout=60", "echo", "x"});
  EXPECT_EQ(good.status, 0);
  EXPECT_EQ(good.out, "x\nx\n");
  EXPECT_EQ(good.err, "");
  EXPECT_EQ(run({"-n", "1", "--timeout=60", "sh", "-c", "exit 3"}).status, 3);
}

TEST(TimeLimit, names_the_hosts_that_have_not_answered) {
  const TemporaryFile ssh;
  std::ofstream(ssh.path()) << "#!/bin/sh\nexec sleep 1000\n";
  ::chmod(ssh.path().c_str(), 0700);
  const Result result =
      run({"--ssh", ssh.path(), "--hosts", "far1,far2", "--timeout", "0.3", "true"});
  EXPECT_EQ(result.status, 124);
  EXPECT_NE(result.err.find("within 0.3 s (--timeout): no agent on far1, far2"), std::string::npos)
      << result.err;
}

TEST(TimeLimit, holds_although_nobody_reads_the_output) {
  Job job({"-n", "2", "--timeout", "0.5", "yes"});
  EXPECT_TRUE(eventually([&] { return job.ended(); }));
  job.finish();
  EXPECT_EQ(job.status, 124);
  EXPECT_NE(job.err.find("which were not read within 2 s after --timeout"), std::string::npos)
      << job.err;
  EXPECT_TRUE(job.all_gone());
}

}  // namespace
}  // namespace hocket::internal::launch_test
