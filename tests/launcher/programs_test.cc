// hocket-run with several programs, separated by `:`.
#include <gtest/gtest.h>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using Words = std::vector<std::string>;

TEST(Programs, have_consecutive_ranks_of_one_job) {
  const Words rows[] = {
      {"-n", "1", "--tag-output", "echo", "a", "x", ":", "-n", "2", "echo", "b", ":", "-n", "1",
       "echo", "c"},
      {"--tag-output", "-np", "1", "echo", "a", "x", ":", "--np=2", "echo", "b", ":", "-n1", "--",
       "echo", "c"},
  };
  for (const Words& row : rows) {
    const Result result = run(row);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(sorted_lines_of(result.out), (Words{"[0] a x", "[1] b", "[2] b", "[3] c"}));
  }
}

TEST(Programs, join_the_same_communicator) {
  const Result result = run({"-n", "1", this_program(), "--rank", "meet", ":", "-n", "3", "sh",
                             "-c", "exec " + this_program() + " --rank meet"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "rank 0 met 3\n");
}

TEST(Programs, fill_the_hosts_in_their_order) {
  const std::string says = "echo $0 $HOCKET_RANK $HOCKET_RANKS $HOCKET_LOCAL_RANK";
  const Result result = run({"--interface", "lo", "--hosts", "localhost:3,127.0.0.1:3", "-n", "2",
                             "sh", "-c", says, "a", ":", "-n", "3", "sh", "-c", says, "b"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out),
            (Words{"a 0 5 0", "a 1 5 1", "b 2 5 2", "b 3 5 0", "b 4 5 1"}));
}

TEST(Programs, keep_their_ranks_where_map_by_deals_these_to_hosts_in_turn) {
  const std::string says = "echo $0 $HOCKET_RANK $HOCKET_LOCAL_RANK";
  const Result result =
      run({"--interface", "lo", "--hosts", "localhost:3,127.0.0.1:3", "--map-by", "node", "-n", "2",
           "sh", "-c", says, "a", ":", "-n", "3", "sh", "-c", says, "b"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out), (Words{"a 0 0", "a 1 0", "b 2 1", "b 3 1", "b 4 2"}));
}

TEST(Programs, that_cannot_be_run_or_fail_are_named) {
  const Result missing = run({"-n", "1", "sleep", "1000", ":", "-n", "1", "no-such-program"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_NE(missing.err.find("cannot run 'no-such-program'"), std::string::npos) << missing.err;
  const Result failed = run({"-n", "2", "true", ":", "-n", "1", "sh", "-c", "exit 6"});
  EXPECT_EQ(failed.status, 6);
  EXPECT_NE(failed.err.find("rank 2 on "), std::string::npos) << failed.err;
}

TEST(Programs, are_one_program_after_two_dashes) {
  EXPECT_EQ(run({"-n", "1", "--", "echo", "a", ":", "-n", "2", "b"}).out, "a : -n 2 b\n");
}

TEST(Programs, that_are_not_complete_are_refused_with_what_to_write) {
  const struct {
    Words arguments;
    const char* said;
  } rows[] = {
      {{"-n", "2", "echo", "a", ":"}, "no program after ':'; write -n RANKS PROGRAM there"},
      {{"-n", "2", "echo", "a", ":", "-n", "2"}, "no program after ':'"},
      {{"-n", "2", "echo", "a", ":", ":", "-n", "1", "echo"}, "no program after ':'"},
      {{"-n", "2", ":", "-n", "1", "echo", "a"}, "no program before ':'"},
      {{"-n", "2", "echo", "a", ":", "echo", "b"},
       "'echo' after ':' has no number of ranks; write `: -n RANKS echo`"},
      {{"echo", "a", ":", "-n", "1", "cat"},
       "'echo' has no number of ranks; write -n RANKS before each of the programs"},
      {{"-n", "2", "echo", "a", ":", "-n", "0", "echo"}, "-n: '0' after ':' is no number of ranks"},
      {{"-n", "2", "echo", "a", ":", "-n", "x", "echo"}, "-n: 'x' after ':' is no number of ranks"},
      {{"-n", "2", "echo", "a", ":", "-n", "1", "--wdir", "/", "echo"},
       "option --wdir after ':': only -n is allowed there; write the options of all ranks before"},
      {{"-n", "60000", "echo", "a", ":", "-n", "60000", "echo"},
       "the programs have 120000 ranks together, but a job has at most 65535"},
      {{"--hosts", "localhost:3", "-n", "2", "echo", "a", ":", "-n", "2", "echo"},
       "-n 4 asks for more ranks than --hosts has room for (3)"},
  };
  for (const auto& row : rows) {
    const Result result = run(row.arguments);
    EXPECT_EQ(result.status, 125) << row.said;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(row.said), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace hocket::internal::launch_test
