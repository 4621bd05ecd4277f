// A rank dies or fails during a split, a duplicate or the creation of a group: every other rank
// gets an error that names it and the reason, although the ranks that detected it first do not
// leave.
#include <sys/resource.h>

#include <numeric>
#include <random>

#include "faults/processes.h"
#include "seed.h"

namespace faults {
namespace {

using ranks::Env;

/// Makes a communicator of all ranks of comm.
using MakePart = hocketResult_t (*)(hocketComm_t comm, int ranks, hocketComm_t* part);

hocketResult_t split(hocketComm_t comm, int, hocketComm_t* part) {
  return hocketCommSplit(comm, 0, 0, part, nullptr);
}
hocketResult_t duplicate(hocketComm_t comm, int, hocketComm_t* part) {
  return hocketCommDuplicate(comm, part, nullptr);
}
hocketResult_t create_group(hocketComm_t comm, int ranks, hocketComm_t* part) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return hocketCommCreateGroup(comm, all.data(), ranks, 0, part, nullptr);
}

struct Case {
  const char* transport;
  int ranks;
  const char* what = "split";
  MakePart make = split;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.transport << "_" << c.ranks << "_" << c.what;
}

class DeathInSplit : public testing::TestWithParam<Case> {};

/// Makes one part after another until an error, which is kept; then stays, with its communicator.
void make_parts_until_error(Process& self, MakePart make) {
  hocketResult_t result = hocketSuccess;
  while (result == hocketSuccess) {
    hocketComm_t part = nullptr;
    result = make(self.comm, self.ranks, &part);
    if (result == hocketSuccess) {
      EXPECT_HOCKET(hocketCommDestroy(part));
      ++self.report().rounds;
    } else {
      EXPECT_EQ(nullptr, part);
    }
  }
  self.keep(result, nullptr);  // of the call, which may leave the communicator usable
  self.report().phase = 1;
  self.await_phase(1);
}

TEST_P(DeathInSplit, is_named_by_every_survivor_though_all_survivors_stay) {
  const auto [transport, ranks, what, make] = GetParam();
  const Env env{{{"HOCKET_TRANSPORT", transport}}};
  std::mt19937_64 random(tests::seed());
  std::vector<std::int64_t> latencies;
  hocketConfig_t config = ranks::patient_config();
  config.join_deadline_ms = 20'000;  // a survivor without an error would wait so long
  for (int i = 0; i < ranks::repetitions(150, 15) && !HasFailure(); ++i) {
    const int victim = static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
    Job job(ranks);
    ASSERT_NO_FATAL_FAILURE(
        job.start(config, [make = make](Process& self) { make_parts_until_error(self, make); }));
    ASSERT_NO_FATAL_FAILURE(job.await_rounds(1 + random() % 4));
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    const std::int64_t killed = now_ns();
    job.kill(victim, SIGKILL);
    job.wait(victim);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == victim) continue;
      ASSERT_NO_FATAL_FAILURE(job.await([&] { return job.report(rank).phase == 1; }));
      const Report& report = job.report(rank);
      EXPECT_EQ(hocketRemoteError, report.result)
          << "rank " << rank << " of kill " << i << ", of rank " << victim << ": " << report.text;
      EXPECT_EQ(victim, report.culprit)
          << "rank " << rank << " of kill " << i << ": " << report.text;
      latencies.push_back(report.error_ns.load() - killed);
    }
    job.shared().phase = 1;
    job.finish();
  }
  std::printf("from SIGKILL in a %s to the survivors' errors: %s\n", what,
              summary(latencies).c_str());
}
INSTANTIATE_TEST_SUITE_P(Cases, DeathInSplit,
                         testing::Values(Case{"shm", 3}, Case{"shm", 4}, Case{"tcp", 3},
                                         Case{"tcp", 4}, Case{"shm", 3, "duplicate", duplicate},
                                         Case{"tcp", 4, "duplicate", duplicate},
                                         Case{"shm", 4, "create_group", create_group},
                                         Case{"tcp", 3, "create_group", create_group}),
                         [](const auto& info) { return testing::PrintToString(info.param); });

/// The lowest local rank makes the board, the last one only what wakes it: where either has no file
/// descriptor left, the others wait at different places.
class FailedSplit : public testing::TestWithParam<int> {};

TEST_P(FailedSplit, tells_all_ranks_which_rank_failed_and_why) {
#ifdef __SANITIZE_ADDRESS__  // with it, the undefined behavior sanitizer
  GTEST_SKIP() << "the sanitizer needs a pipe to check the type of an object";
#endif
  const Env env{{{"HOCKET_TRANSPORT", "shm"}}};
  const int poor = GetParam();
  constexpr int ranks = 3;
  Job job(ranks);
  const auto body = [poor](Process& self) {
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    if (self.rank == poor) {
      const int next = ::dup(0);
      ::close(next);
      // Rank 2 still gets the board.
      const auto limit = static_cast<rlim_t>(poor == 0 ? next : next + 1);
      const rlimit none{limit, limit};
      EXPECT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &none));
    }
    hocketComm_t part = nullptr;
    self.keep(hocketCommSplit(self.comm, 0, 0, &part, nullptr));
    EXPECT_EQ(nullptr, part);
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  const std::string name = "rank " + std::to_string(poor) + " (host ";
  const std::string pid = "pid " + std::to_string(job.pid(poor)) + ")";
  job.finish();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string text = job.report(rank).text;
    EXPECT_NE(hocketSuccess, job.report(rank).result);
    EXPECT_NE(std::string::npos, text.find("Too many open files")) << rank << ": " << text;
    if (rank == poor) continue;
    EXPECT_NE(std::string::npos, text.find(name)) << rank << ": " << text;
    EXPECT_NE(std::string::npos, text.find(pid)) << rank << ": " << text;
    EXPECT_EQ(std::string::npos, text.find("destroyed")) << rank << ": " << text;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, FailedSplit, testing::Values(0, 2),
                         [](const auto& info) { return "rank_" + std::to_string(info.param); });

}  // namespace
}  // namespace faults
