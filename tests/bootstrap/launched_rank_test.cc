// The rank that the variables of a launcher give to a process.
#include "bootstrap/launchers/launched_rank.h"

#include <gtest/gtest.h>

#include "bootstrap/launchers/host_list.h"

namespace hocket::internal {
namespace {

using Lines = std::vector<std::string>;

/// An environment of "NAME=value" lines.
class Fake {
 public:
  explicit Fake(Lines lines) : lines_(std::move(lines)) {
    for (const std::string& line : lines_) entries_.push_back(line.c_str());
    entries_.push_back(nullptr);
  }
  Environment get() const { return Environment(entries_.data()); }

 private:
  Lines lines_;
  std::vector<const char*> entries_;
};

Status launched_rank_of(const Lines& lines, LaunchedRank* launched, bool* found,
                        bool sockets = true) {
  return find_launched_rank(
      Fake(lines).get(), [=](int) { return sockets; }, launched, found);
}

const Lines torchrun = {"RANK=3",         "WORLD_SIZE=4",      "TORCHELASTIC_RUN_ID=none",
                        "MASTER_ADDR=h1", "MASTER_PORT=29500", "LOCAL_WORLD_SIZE=2"};
const Lines open_mpi = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=1", "PMIX_NAMESPACE=17"};
const Lines hydra = {"PMI_RANK=0", "PMI_SIZE=3", "PMI_FD=7", "MPI_LOCALNRANKS=1"};
const Lines pmix = {"PMIX_RANK=2", "PMIX_NAMESPACE=slurm.pmix.1.0", "SLURM_PROCID=2",
                    "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4"};
const Lines slurm = {"SLURM_PROCID=5",  "SLURM_STEP_ID=0",
                     "SLURM_JOB_ID=7",  "SLURM_STEP_NUM_TASKS=8",
                     "SLURM_NTASKS=99", "SLURM_STEP_NODELIST=n[3-4],login"};

Lines both(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(LaunchedRank, is_that_of_the_launcher_and_of_the_innermost_one) {
  const struct {
    Lines lines;
    const char* launcher;
    int rank, ranks;
    Exchange exchange;
    bool one_host;
  } rows[] = {
      {torchrun, "torchrun", 3, 4, Exchange::derived, false},
      {open_mpi, "Open MPI's mpirun", 1, 2, Exchange::pmix, true},
      {hydra, "a PMI-1 launcher", 0, 3, Exchange::pmi1, false},
      {{"PMI_PORT=h1:4000", "PMI_ID=2"}, "a PMI-1 launcher", -1, 0, Exchange::pmi1, false},
      {pmix, "a PMIx launcher", 2, 0, Exchange::pmix, false},
      {slurm, "Slurm's srun", 5, 8, Exchange::derived, false},
      {both(torchrun, slurm), "torchrun", 3, 4, Exchange::derived, false},
      {both(open_mpi, slurm), "Open MPI's mpirun", 1, 2, Exchange::pmix, true},
      {both(hydra, slurm), "a PMI-1 launcher", 0, 3, Exchange::pmi1, false},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h1"},
       "a launcher that sets RANK and WORLD_SIZE",
       1,
       2,
       Exchange::derived,
       false},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"},
       "a launcher that sets RANK and WORLD_SIZE",
       1,
       2,
       Exchange::derived,
       true},
  };
  for (const auto& row : rows) {
    LaunchedRank launched;
    bool found = false;
    const Status status = launched_rank_of(row.lines, &launched, &found);
    ASSERT_TRUE(status.ok() && found) << row.lines[0] << ": " << status.message();
    EXPECT_EQ(launched.launcher, row.launcher);
    EXPECT_EQ(launched.rank, row.rank) << row.launcher;
    EXPECT_EQ(launched.ranks, row.ranks) << row.launcher;
    EXPECT_EQ(launched.exchange, row.exchange) << row.launcher;
    EXPECT_EQ(launched.one_host, row.one_host) << row.launcher;
  }
}

TEST(LaunchedRank, is_not_found_where_no_variable_makes_a_rank) {
  for (const Lines& lines :
       {Lines{}, Lines{"SLURM_PROCID=0", "SLURM_NTASKS=4"}, Lines{"SLURM_NTASKS=4"},
        Lines{"RANK=3"}, Lines{"WORLD_SIZE=1"}, Lines{"OMPI_COMM_WORLD_SIZE=1"},
        Lines{"TORCHELASTIC_RUN_ID=none", "WORLD_SIZE=1"},
        Lines{"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"}, Lines{"OMPI_COMM_WORLD_RANK="},
        Lines{"PMIX_RANK=0"}}) {
    LaunchedRank launched;
    bool found = true;
    EXPECT_TRUE(launched_rank_of(lines, &launched, &found).ok());
    EXPECT_FALSE(found) << lines[0];
  }
}

TEST(LaunchedRank, that_was_lost_is_no_job_of_one_rank) {
  const struct {
    Lines lines;
    const char* launcher;
    const char* set;
    const char* missing;
  } rows[] = {
      {{"WORLD_SIZE=2"}, "a launcher that sets RANK", "WORLD_SIZE=2", "RANK is not set"},
      {{"TORCHELASTIC_RUN_ID=none"}, "torchrun", "TORCHELASTIC_RUN_ID=none", "RANK is not set"},
      {{"TORCHELASTIC_RUN_ID=none", "WORLD_SIZE=4"},
       "torchrun",
       "TORCHELASTIC_RUN_ID=none, WORLD_SIZE=4",
       "RANK is not set"},
      {{"OMPI_COMM_WORLD_SIZE=2"},
       "Open MPI's mpirun",
       "OMPI_COMM_WORLD_SIZE=2",
       "OMPI_COMM_WORLD_RANK is not set"},
      {{"OMPI_COMM_WORLD_SIZE=2x"},
       "Open MPI's mpirun",
       "OMPI_COMM_WORLD_SIZE=2x",
       "OMPI_COMM_WORLD_RANK is not set"},
      {{"PMI_SIZE=2", "PMI_FD=7"}, "a PMI-1 launcher", "PMI_SIZE=2", "PMI_RANK is not set"},
      {{"PMI_PORT=h1:4000"}, "a PMI-1 launcher", "PMI_PORT=h1:4000", "PMI_ID is not set"},
      {{"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=2"},
       "Slurm's srun",
       "SLURM_STEP_ID=0, SLURM_STEP_NUM_TASKS=2",
       "SLURM_PROCID is not set"},
  };
  for (const auto& row : rows) {
    LaunchedRank launched;
    bool found = false;
    const Status status = launched_rank_of(row.lines, &launched, &found);
    EXPECT_EQ(status.code(), Code::invalid_usage) << row.set;
    EXPECT_TRUE(found) << row.set;
    for (const char* part : {row.launcher, row.set, row.missing, "hocketCommInitRank"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  }
}

TEST(LaunchedRank, of_the_only_rank_needs_no_way_to_others) {
  for (const Lines& lines :
       {Lines{"RANK=0", "WORLD_SIZE=1"}, Lines{"RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=n"},
        Lines{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
        Lines{"PMI_RANK=0", "PMI_SIZE=1"},
        Lines{"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"}}) {
    LaunchedRank launched;
    bool found = false;
    const Status status = launched_rank_of(lines, &launched, &found);
    EXPECT_TRUE(status.ok() && found) << status.message();
    EXPECT_EQ(launched.rank, 0) << lines[0];
    EXPECT_EQ(launched.ranks, 1) << lines[0];
  }
}

TEST(LaunchedRank, of_an_inner_launcher_counts_although_the_outer_ones_rank_was_unset) {
  LaunchedRank launched;
  bool found = false;
  ASSERT_TRUE(
      launched_rank_of(both(hydra, {"OMPI_COMM_WORLD_SIZE=2", "WORLD_SIZE=2"}), &launched, &found)
          .ok());
  EXPECT_EQ(launched.launcher, "a PMI-1 launcher");
}

TEST(LaunchedRank, with_a_wrong_variable_is_refused_by_name) {
  const struct {
    Lines lines;
    const char* named;
  } rows[] = {
      {{"RANK=1", "WORLD_SIZE=2"}, "MASTER_ADDR is not set"},
      {{"RANK=1", "MASTER_ADDR=h"}, "WORLD_SIZE is not set"},
      {{"WORLD_SIZE=2", "MASTER_ADDR=h"}, "RANK is not set"},
      {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=h"}, "RANK=2"},
      {{"RANK=-1", "WORLD_SIZE=2", "MASTER_ADDR=h"}, "RANK=-1"},
      {{"RANK=0", "WORLD_SIZE=2x", "MASTER_ADDR=h"}, "WORLD_SIZE=2x"},
      {{"RANK=0", "WORLD_SIZE=99999999", "MASTER_ADDR=h"}, "WORLD_SIZE=99999999"},
      {{"OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_SIZE is not set"},
      {{"PMI_RANK=0", "PMI_SIZE=2"}, "neither PMI_FD nor PMI_PORT"},
      {{"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=h[1-"},
       "SLURM_STEP_NODELIST"},
  };
  for (const auto& row : rows) {
    LaunchedRank launched;
    bool found = false;
    const Status status = launched_rank_of(row.lines, &launched, &found);
    EXPECT_EQ(status.code(), Code::invalid_usage) << row.named;
    EXPECT_TRUE(found) << row.named;
    EXPECT_NE(status.message().find(row.named), std::string::npos) << status.message();
  }
}

TEST(LaunchedRank, of_two_launchers_that_contradict_each_other_is_refused_if_both_may_be_meant) {
  LaunchedRank launched;
  bool found = false;
  const Lines nested = both(open_mpi, hydra);
  EXPECT_TRUE(launched_rank_of(nested, &launched, &found, false).ok())
      << "PMI_FD is closed: Hydra is outside";
  EXPECT_EQ(launched.ranks, 2);
  const Status status = launched_rank_of(nested, &launched, &found, true);
  EXPECT_EQ(status.code(), Code::invalid_usage);
  for (const char* variable : {"OMPI_COMM_WORLD_RANK=1", "PMI_RANK=0", "PMI_SIZE=3"}) {
    EXPECT_NE(status.message().find(variable), std::string::npos) << status.message();
  }
}

TEST(LaunchedRank, of_torchruns_only_rank_is_refused_if_mpirun_may_be_meant) {
  const Lines one = {"RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=h1"};
  LaunchedRank launched;
  bool found = false;
  for (const Lines& mpi : {open_mpi, hydra}) {
    EXPECT_TRUE(launched_rank_of(both(torchrun, mpi), &launched, &found, false).ok());
    const Status status = launched_rank_of(both(one, mpi), &launched, &found, false);
    EXPECT_EQ(status.code(), Code::invalid_usage);
    EXPECT_NE(status.message().find("RANK=0, WORLD_SIZE=1 (torchrun), but "), std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(launched_rank_of(both(one, slurm), &launched, &found).ok());
  EXPECT_TRUE(
      launched_rank_of(both(one, {"PMI_RANK=0", "PMI_SIZE=1", "PMI_FD=7"}), &launched, &found)
          .ok());
}

TEST(LaunchedRank, knows_the_variables_that_only_a_launcher_sets_for_a_rank) {
  for (const Lines& lines :
       {torchrun, open_mpi, hydra, pmix, slurm, Lines{"PMI_PORT=h1:4000", "PMI_ID=2"}}) {
    EXPECT_TRUE(has_mark(Fake(lines).get())) << lines[0];
    Lines left;
    for (const std::string& line : lines) {
      if (!marks_rank(line.substr(0, line.find('=')))) left.push_back(line);
    }
    EXPECT_FALSE(has_mark(Fake(left).get())) << lines[0];
  }
  EXPECT_FALSE(has_mark(Fake({"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h1"}).get()));
  // As Open MPI's MPI_Init leaves them in a process that no mpirun started.
  EXPECT_FALSE(has_mark(Fake({"PMIX_RANK=0", "PMIX_NAMESPACE=17"}).get()));
}

TEST(LaunchedRank, names_the_variables_of_another_launcher_that_says_something_else) {
  LaunchedRank launched;
  bool found = false;
  ASSERT_TRUE(launched_rank_of(both(torchrun, slurm), &launched, &found).ok());
  EXPECT_EQ(launched.others, "SLURM_PROCID=5");
  EXPECT_EQ(launched.variables, "RANK=3, WORLD_SIZE=4");
}

TEST(LaunchedRank, of_srun_is_on_the_first_host_or_on_any_if_the_user_placed_the_tasks) {
  LaunchedRank launched;
  bool found = false;
  ASSERT_TRUE(launched_rank_of(slurm, &launched, &found).ok());
  EXPECT_EQ(launched.hosts, Lines{"n3"});
  ASSERT_TRUE(
      launched_rank_of(both(slurm, {"SLURM_DISTRIBUTION=arbitrary"}), &launched, &found).ok());
  EXPECT_EQ(launched.hosts, (Lines{"n3", "n4", "login"}));
}

TEST(HostList, is_expanded) {
  const struct {
    const char* list;
    Lines hosts;
  } rows[] = {
      {"h", {"h"}},
      {"h[1-2,5]", {"h1", "h2", "h5"}},
      {"h[08-11]", {"h08", "h09", "h10", "h11"}},
      {"a[1,2]-x,b", {"a1-x", "a2-x", "b"}},
      {"r[1-2]n[0-1]", {"r1n0", "r1n1", "r2n0", "r2n1"}},
  };
  for (const auto& row : rows) {
    Lines hosts;
    const Status status = expand_host_list(row.list, 100, &hosts);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(hosts, row.hosts) << row.list;
  }
}

TEST(HostList, that_is_wrong_or_too_long_is_refused) {
  Lines hosts;
  for (const char* list : {"", "h[1-", "h]1[", "h[2-1]", "h[x]", "h[]", "h,,i", "h[1-200]",
                           "h[1-20]n[1-20]", "h[1-9999999999]"}) {
    EXPECT_EQ(expand_host_list(list, 100, &hosts).code(), Code::invalid_argument) << list;
  }
}

}  // namespace
}  // namespace hocket::internal
