// Ranks that are ahead of their peers: a rooted call of a few bytes waits for no rank that needs
// nothing of it, for up to 127 calls.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/limits.h"
#include "matrix/ranks.h"
#include "one_core.h"

namespace {

using ranks::Env;
using ranks::hear;
using ranks::Rank;

constexpr int most_ahead = hocket::internal::run_ahead_operations - 1;
constexpr std::size_t most_elements = 32;  // a scatter of 3 ranks needs 384 bytes of scratch

/// One of the calls in which rank 0 waits for nobody.
struct Rooted {
  std::array<int, most_elements> input{};
  std::array<int, 3 * most_elements> output{};
  std::array<int, 3 * most_elements> blocks{};

  hocketResult_t run(int step, std::size_t count, const Rank& self, hocketStream_t stream) {
    input.fill(100 * step + self.rank);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = static_cast<int>(1000 * static_cast<std::size_t>(step) + i / count);
    }
    output.fill(-1);
    switch (step % 4) {
      case 0:
        return hocketBroadcast(input.data(), output.data(), count, hocketInt32, 0, self.comm,
                               stream);
      case 1:
        return hocketReduce(input.data(), output.data(), count, hocketInt32, hocketSum, 1,
                            self.comm, stream);
      case 2:
        return hocketGather(input.data(), output.data(), count, hocketInt32, 2, self.comm, stream);
      default:
        return hocketScatter(blocks.data(), output.data(), count, hocketInt32, 0, self.comm,
                             stream);
    }
  }

  void check(int step, std::size_t count, const Rank& self) const {
    for (std::size_t i = 0; i < count; ++i) {
      switch (step % 4) {
        case 0:
          ASSERT_EQ(100 * step, output[i]) << "broadcast " << step;
          break;
        case 1:
          ASSERT_EQ(self.rank == 1 ? 300 * step + 3 : -1, output[i]) << "reduce " << step;
          break;
        case 2:
          for (int rank = 0; self.rank == 2 && rank < 3; ++rank) {
            ASSERT_EQ(100 * step + rank, output[static_cast<std::size_t>(rank) * count + i]);
          }
          break;
        default:
          ASSERT_EQ(1000 * step + self.rank, output[i]) << "scatter " << step;
      }
    }
  }
};

/// The ranks have one core, so that they share it on any machine: there are as many scratches of
/// these calls as arrival lines then.
class Ahead : public testing::TestWithParam<const char*> {
 protected:
  tests::OneCore one_core_;
  Env env_{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", GetParam()}}};
};

/// The other ranks make no call before rank 0 has returned from 127: in its thread, and on a
/// stream.
TEST_P(Ahead, ends_many_rooted_calls_before_its_peers_begin_the_first) {
  const std::size_t count = std::string(GetParam()) == "inline" ? 2 : most_elements;
  ranks::run_ranks(3, [count](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    for (const bool on_stream : {false, true}) {
      for (int round = 0; round < 3; ++round) {
        EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
        if (self.rank != 0) self.meet();
        std::array<Rooted, most_ahead> calls;
        for (int step = 0; step < most_ahead; ++step) {
          EXPECT_HOCKET(calls[static_cast<std::size_t>(step)].run(step, count, self,
                                                                  on_stream ? stream : nullptr));
        }
        EXPECT_HOCKET(hocketStreamSynchronize(stream));
        for (int step = 0; step < most_ahead; ++step) {
          calls[static_cast<std::size_t>(step)].check(step, count, self);
        }
        if (self.rank == 0) self.meet();
      }
    }
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

TEST_P(Ahead, and_gone_leaves_its_data_to_its_peers) {
  ranks::run_ranks(3, [](Rank& self) {
    if (self.rank != 0) self.meet();
    for (int step = 0; step < most_ahead; ++step) {
      int x = self.rank == 0 ? step : -1;
      EXPECT_HOCKET(hocketBroadcast(&x, &x, 1, hocketInt32, 0, self.comm, nullptr));
      EXPECT_EQ(step, x);
    }
    if (self.rank != 0) return;
    EXPECT_HOCKET(hocketCommDestroy(self.comm));
    self.comm = nullptr;
    self.meet();
  });
}

TEST_P(Ahead, by_too_many_calls_waits_and_names_the_late_rank_at_the_deadline) {
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 1000;
  const auto body = [](Rank& self) {
    int x = 0;
    hocketResult_t result = hocketSuccess;
    int calls = 0;
    const int own = self.rank == 0 ? most_ahead + 3 : self.rank == 1 ? 2 : 1;
    while (result == hocketSuccess && calls < own) {
      ++calls;
      result = hocketBroadcast(&x, &x, 1, hocketInt32, 0, self.comm, nullptr);
    }
    if (self.rank == 0) {
      EXPECT_EQ(hocketTimeout, result);
      EXPECT_EQ(most_ahead + 2, calls) << "rank 2 has made one call";
      int culprit = -1;
      EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
      EXPECT_EQ(2, culprit) << hocketGetLastError(self.comm);
    }
    self.meet();
  };
  ranks::run_ranks(3, body, config);
}

/// The ranks are several calls apart when the difference is found: all learn of the call in which
/// it began, and quote it from both sides.
TEST_P(Ahead, of_another_call_is_a_mismatch_that_quotes_that_call) {
  ranks::run_ranks(3, [](Rank& self) {
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    constexpr int differs = 4;
    if (self.rank == 1) self.meet();
    std::array<int, 2> x{};
    hocketResult_t result = hocketSuccess;
    for (int step = 1; step <= 3 * most_ahead && result == hocketSuccess; ++step) {
      if (self.rank == 0 && step == most_ahead) self.meet();
      const bool other = self.rank == 2 && step == differs;
      // A rank that is no root of a reduce waits for nobody either.
      result =
          other ? hocketReduce(x.data(), x.data(), 2, hocketInt32, hocketMax, 0, self.comm, nullptr)
                : hocketBroadcast(x.data(), x.data(), 1, hocketInt32, 0, self.comm, nullptr);
      if (self.rank == 2 && step == 1) self.meet();
    }
    EXPECT_EQ(hocketMismatch, result);
    const std::string text = hocketGetLastError(self.comm);
    EXPECT_NE(std::string::npos, text.find("broadcast of 1 int32 from root 0 (operation 5)"))
        << text;
    EXPECT_NE(std::string::npos, text.find("reduce of 2 int32, max to root 0 (operation 5)"))
        << text;
    self.meet();
  });
}

TEST_P(Ahead, ends_at_an_abort) {
  ranks::run_ranks(3, [](Rank& self) {
    int x = 0;
    if (self.rank == 0) {
      for (int step = 0; step < most_ahead; ++step) {
        EXPECT_HOCKET(hocketBroadcast(&x, &x, 1, hocketInt32, 0, self.comm, nullptr));
      }
    }
    self.meet();
    if (self.rank == 2) {
      EXPECT_HOCKET(hocketCommAbort(self.comm));
    }
    EXPECT_EQ(hocketAborted, self.rank == 0
                                 ? hocketBroadcast(&x, &x, 1, hocketInt32, 0, self.comm, nullptr)
                                 : hear(self.comm));
    self.meet();
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Ahead, testing::Values("inline", "one-shot"),
                         [](const auto& info) {
                           return std::string(info.param) == "inline" ? "inlined" : "one_shot";
                         });

/// A root that sends waits too, and sleeps until the peer has come further.
TEST(AheadByShm, of_a_peer_by_127_collectives_over_messages_waits_for_it) {
  const Env env{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "pairs"}}};
  std::atomic<int> ended = 0;
  ranks::run_ranks(2, [&](Rank& self) {
    constexpr int calls = 3 * most_ahead;
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    if (self.rank == 1) {
      while (ended < most_ahead) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to go too far
      EXPECT_EQ(most_ahead, ended);
    }
    for (int step = 0; step < calls; ++step) {
      const std::array<int, 2> blocks{step, 1000 + step};
      int x = -1;
      ASSERT_HOCKET(hocketScatter(blocks.data(), &x, 1, hocketInt32, 0, self.comm, nullptr));
      ASSERT_EQ(1000 * self.rank + step, x);
      if (self.rank == 0) ++ended;
    }
    const char *algorithm = nullptr, *transport = nullptr;
    EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &algorithm, &transport));
    EXPECT_STREQ("pairs", algorithm);
  });
}

/// Collectives over messages. Where no algorithm of messages serves a call, another algorithm runs.
class AheadByMessages : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}, {"HOCKET_ALGORITHM", "pairs"}}};
};

/// Both ranks send, and neither waits for the other. Whatever runs the calls after that finds it.
TEST_P(AheadByMessages, of_another_call_is_a_mismatch_that_quotes_that_call) {
  ranks::run_ranks(2, [](Rank& self) {
    const std::array<int, 2> blocks{};
    int x = 0;
    hocketResult_t result =
        hocketScatter(blocks.data(), &x, 1, hocketInt32, self.rank, self.comm, nullptr);
    for (int later = 0; later <= most_ahead && result == hocketSuccess; ++later) {
      result = hocketBarrier(self.comm, nullptr);
    }
    EXPECT_EQ(hocketMismatch, result);
    const std::string text = hocketGetLastError(self.comm);
    EXPECT_NE(std::string::npos, text.find("from root 0 (operation 1)")) << text;
    EXPECT_NE(std::string::npos, text.find("from root 1 (operation 1)")) << text;
    self.meet();
  });
}

/// The next call is the same on both ranks, but not their calls before.
TEST_P(AheadByMessages, by_a_call_that_the_peer_leaves_out_is_a_mismatch) {
  ranks::run_ranks(2, [](Rank& self) {
    const std::array<int, 2> blocks{};
    int x = 0;
    hocketResult_t result =
        self.rank == 1 ? hocketSuccess
                       : hocketScatter(blocks.data(), &x, 1, hocketInt32, 0, self.comm, nullptr);
    for (int later = 0; later <= most_ahead && result == hocketSuccess; ++later) {
      result = hocketBarrier(self.comm, nullptr);
    }
    EXPECT_EQ(hocketMismatch, result);
    const std::string text = hocketGetLastError(self.comm);
    EXPECT_NE(std::string::npos, text.find("scatter of 1 int32 from root 0 (operation 1)")) << text;
    EXPECT_NE(std::string::npos, text.find("barrier (operation 1)")) << text;
    self.meet();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, AheadByMessages, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
