// Processes that exit: after destroying the communicator, without destroying it, and right after an
// error.
#include <random>

#include "faults/processes.h"
#include "seed.h"

namespace faults {
namespace {

using ranks::Env;

class Exit : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

enum class End { finalize, destroy, finalize_and_kill };

/// Each rank leaves the first communicator as soon as its own last call on it has ended, and ends
/// with the second one leaked.
TEST_P(Exit, with_a_leaked_communicator_harms_nobody_on_another_that_was_left) {
  constexpr int ranks = 5;
  for (const End end : {End::finalize, End::destroy, End::finalize_and_kill}) {
    for (int i = 0; i < ranks::repetitions(40, 5) && !HasFailure(); ++i) {
      Job job(ranks);
      const auto body = [end](Process& self) {
        hocketComm_t first = nullptr;
        ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &first, nullptr));
        std::vector<float> x(1000, 1);
        for (int round = 0; round < 3; ++round) {
          EXPECT_HOCKET(
              hocketAllReduce(x.data(), x.data(), 1000, hocketFloat32, hocketMax, first, nullptr));
        }
        EXPECT_HOCKET(end == End::destroy ? hocketCommDestroy(first) : hocketCommFinalize(first));
        std::fflush(nullptr);
        if (end == End::finalize_and_kill && !testing::Test::HasFailure()) ::_exit(0);
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      };
      ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
      job.finish();
    }
  }
}

TEST_P(Exit, without_finalizing_ends_at_once_what_waits_for_the_rank) {
  constexpr int ranks = 3, gone = 1;
  for (const bool late : {false, true}) {
    Job job(ranks);
    hocketConfig_t config = ranks::patient_config();
    const auto body = [late](Process& self) {
      EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
      if (self.rank == gone) {
        if (late) ::usleep(200'000);  // the others wait by then
        std::fflush(nullptr);
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      }
      if (!late) ::usleep(200'000);
      const std::int64_t begin = now_ns();
      self.keep(hocketBarrier(self.comm, nullptr));
      self.report().figures[0] = static_cast<std::uint64_t>(now_ns() - begin);
      self.report().phase = 1;
      self.await_phase(1);
    };
    ASSERT_NO_FATAL_FAILURE(job.start(config, body));
    job.wait(gone);
    for (const int rank : {0, 2}) {
      ASSERT_NO_FATAL_FAILURE(job.await([&] { return job.report(rank).phase == 1; }));
      const Report& report = job.report(rank);
      const std::string text = report.text;
      EXPECT_EQ(hocketRemoteError, report.result) << rank << ": " << text;
      EXPECT_EQ(gone, report.culprit) << rank << ": " << text;
      EXPECT_NE(std::string::npos,
                text.find("rank 1 ended its process without finalizing the communicator"))
          << rank << ": " << text;
      EXPECT_EQ(std::string::npos, text.find("died")) << rank << ": " << text;
      EXPECT_EQ(std::string::npos, text.find("kernel")) << rank << ": " << text;
    }
    job.shared().phase = 1;
    job.finish();
  }
}

/// Ranks that see the mismatch return it and are gone; those that are still in the barrier before
/// it must end that barrier, and hear of the mismatch, not of the ends.
TEST_P(Exit, right_after_a_mismatch_hides_neither_the_mismatch_nor_the_call_before_it) {
  constexpr int ranks = 4;
  std::mt19937_64 random(tests::seed());
  for (int i = 0; i < ranks::repetitions(200, 25) && !HasFailure(); ++i) {
    const int odd = static_cast<int>(random() % ranks);
    const bool in_order = i % 2 == 0;  // exit(), or _exit()
    Job job(ranks);
    const auto body = [odd, in_order](Process& self) {
      hocketResult_t result = hocketSuccess;
      std::vector<float> x(100);
      for (int round = 0; round < 5 && result == hocketSuccess; ++round) {
        EXPECT_HOCKET(hocketBarrier(self.comm, nullptr)) << "round " << round;
        const std::size_t count = round == 4 && self.rank == odd ? 11 : 10;
        result = hocketAllReduce(x.data(), x.data(), count, hocketFloat32, hocketSum, self.comm,
                                 nullptr);
      }
      self.keep(result);
      std::fflush(nullptr);
      const int status = testing::Test::HasFailure() ? 1 : 0;
      in_order ? std::exit(status) : ::_exit(status);
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    job.finish();
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(hocketMismatch, job.report(rank).result)
          << "rank " << rank << " of job " << i << ", odd: " << odd << ": "
          << job.report(rank).text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Exit, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace faults
