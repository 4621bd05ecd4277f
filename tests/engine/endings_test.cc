// Deadlines, abort, ranks that leave: how calls that cannot succeed end.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "matrix/ranks.h"
#include "seed.h"

namespace {

using ranks::Env;
using ranks::hear;
using ranks::Rank;

constexpr std::size_t large = 300'000;

struct Blocked {
  const char* name;
  std::function<hocketResult_t(Rank&, float* memory, hocketStream_t)> call;
};

/// Calls that wait for rank 0, which does not make them.
std::vector<Blocked> blocked_calls() {
  return {
      {"all-reduce",
       [](Rank& self, float* memory, hocketStream_t stream) {
         return hocketAllReduce(memory, memory, 1, hocketFloat32, hocketSum, self.comm, stream);
       }},
      {"large all-reduce",
       [](Rank& self, float* memory, hocketStream_t stream) {
         return hocketAllReduce(memory, memory, large, hocketFloat32, hocketSum, self.comm, stream);
       }},
      {"broadcast",
       [](Rank& self, float* memory, hocketStream_t stream) {
         return hocketBroadcast(memory, memory, 10, hocketFloat32, 0, self.comm, stream);
       }},
      {"all-gather",
       [](Rank& self, float* memory, hocketStream_t stream) {
         return hocketAllGather(memory, memory + 1000, 100, hocketFloat32, self.comm, stream);
       }},
      {"reduce-scatter",
       [](Rank& self, float* memory, hocketStream_t stream) {
         return hocketReduceScatter(memory + 1000, memory, 100, hocketFloat32, hocketSum, self.comm,
                                    stream);
       }},
      {"barrier",
       [](Rank& self, float*, hocketStream_t stream) { return hocketBarrier(self.comm, stream); }},
      {"recv",
       [](Rank& self, float* memory, hocketStream_t stream) {
         return hocketRecv(memory, 10, hocketFloat32, 0, self.comm, stream);
       }},
      {"large send",
       [](Rank& self, float* memory, hocketStream_t stream) {
         return hocketSend(memory, large, hocketFloat32, 0, self.comm, stream);
       }},
  };
}

class Endings : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(Endings, the_deadline_names_the_rank_that_is_waited_for) {
  for (const Blocked& blocked : blocked_calls()) {
    hocketConfig_t config = ranks::patient_config();
    config.deadline_ms = 1000;  // within it both others begin, and the communicator is made
    ranks::run_ranks(
        3,
        [&](Rank& self) {
          std::vector<float> memory(large);
          hocketResult_t result = hocketSuccess;
          self.meet();
          if (self.rank != 0) result = blocked.call(self, memory.data(), nullptr);
          self.meet();
          if (self.rank == 0) {
            hear(self.comm);
            result = hocketBarrier(self.comm, nullptr);
          }
          const std::string text = hocketGetLastError(self.comm);
          EXPECT_EQ(hocketTimeout, result) << blocked.name << ": " << text;
          EXPECT_NE(std::string::npos, text.find("rank 0")) << blocked.name << ": " << text;
          int culprit = -1;
          EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
          EXPECT_EQ(0, culprit) << blocked.name << ": " << text;
          self.meet();
        },
        config);
    if (HasFailure()) return;
  }
}

/// The ranks that came have left all that rank 0 needs for a small call; but their own calls have
/// failed, and rank 0 has heard of it.
TEST_P(Endings, a_call_fails_at_once_that_begins_when_its_error_is_known) {
  for (const Blocked& blocked : blocked_calls()) {
    if (std::string_view(blocked.name) != "all-reduce" &&
        std::string_view(blocked.name) != "barrier") {
      continue;
    }
    hocketConfig_t config = ranks::patient_config();
    config.deadline_ms = 1000;  // also for what the ranks exchange to make the communicator
    ranks::run_ranks(
        3,
        [&](Rank& self) {
          std::vector<float> memory(large);
          hocketComm_t other = nullptr;
          ASSERT_HOCKET(hocketCommDuplicate(self.comm, &other, nullptr));
          self.meet();
          if (self.rank != 0) {
            EXPECT_EQ(hocketTimeout, blocked.call(self, memory.data(), nullptr));
          }
          self.meet();
          if (self.rank == 1) {
            EXPECT_HOCKET(hocketCommAbort(other));
          }
          EXPECT_EQ(hocketAborted, hear(other));  // so rank 0 has heard of what came before, too
          if (self.rank == 0) {
            EXPECT_EQ(hocketTimeout, blocked.call(self, memory.data(), nullptr)) << blocked.name;
          }
          self.meet();
          EXPECT_HOCKET(hocketCommDestroy(other));
        },
        config);
    if (HasFailure()) return;
  }
}

TEST_P(Endings, abort_from_another_thread_ends_every_call_on_every_rank) {
  for (const Blocked& blocked : blocked_calls()) {
    for (bool on_stream : {false, true}) {
      ranks::run_ranks(3, [&](Rank& self) {
        std::vector<float> memory(large);
        hocketStream_t stream = nullptr;
        if (on_stream) {
          ASSERT_HOCKET(hocketStreamCreate(&stream));
        }
        self.meet();  // all have joined
        std::thread aborter;
        if (self.rank == 1) {
          aborter = std::thread([&] {
            // At any moment of the calls.
            for (std::uint64_t i = 0; i < (tests::seed() + self.rank) % 50; ++i) {
              std::this_thread::yield();
            }
            EXPECT_HOCKET(hocketCommAbort(self.comm));
            EXPECT_HOCKET(hocketCommAbort(self.comm));  // twice is fine
          });
        }
        hocketResult_t result = hocketSuccess;
        if (self.rank != 0) result = blocked.call(self, memory.data(), stream);
        if (on_stream && result == hocketSuccess) result = hocketStreamSynchronize(stream);
        if (aborter.joinable()) aborter.join();
        self.meet();
        if (result == hocketSuccess) {
          hear(self.comm);
          result = hocketBarrier(self.comm, nullptr);
        }
        const std::string text = hocketGetLastError(self.comm);
        EXPECT_EQ(hocketAborted, result) << blocked.name << ", rank " << self.rank << ": " << text;
        EXPECT_NE(std::string::npos, text.find("rank 1")) << blocked.name << ": " << text;
        hocketResult_t state = hocketSuccess;
        EXPECT_HOCKET(hocketCommGetAsyncError(self.comm, &state));
        EXPECT_EQ(hocketAborted, state);
        self.meet();
        hocketStreamDestroy(stream);
      });
      if (HasFailure()) return;
    }
  }
}

/// The ranks that came wait for one another, too. The deadline of `first` passes before those of
/// the others, and `first` may wait only for ranks that have begun.
void expect_late_rank_is_culprit(const char* algorithm, int first) {
  SCOPED_TRACE(std::string(algorithm) + ", first rank " + std::to_string(first));
  static constexpr int late = 4;
  const ranks::Env forced(
      ranks::Env::List{{"HOCKET_ALGORITHM", algorithm}, {"HOCKET_TRANSPORT", "tcp"}});
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = ranks::sanitized ? 3000 : 1000;  // of `first`; within it the others begin
  const auto body = [first](Rank& self) {
    std::vector<float> memory(10 * large);
    self.meet();
    if (self.rank != first) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (self.rank != late) {
      EXPECT_EQ(hocketTimeout, hocketAllReduce(memory.data(), memory.data(), memory.size(),
                                               hocketFloat32, hocketSum, self.comm, nullptr));
    }
    self.meet();
    if (self.rank == late) {
      hear(self.comm);
      EXPECT_EQ(hocketTimeout, hocketBarrier(self.comm, nullptr));
    }
    const std::string text = hocketGetLastError(self.comm);
    int culprit = -1;
    EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
    EXPECT_EQ(late, culprit) << text;
    EXPECT_NE(std::string::npos, text.find("rank 4 (")) << text;
    EXPECT_NE(std::string::npos, text.find("has not begun it")) << text;
    self.meet();
  };
  ranks::run_ranks(late + 1, body, config);
}

TEST(Culprit, is_the_rank_that_has_not_begun_and_no_rank_between) {
  expect_late_rank_is_culprit("ring", 1);
  expect_late_rank_is_culprit("one-shot", 0);
  if (ranks::sanitized) return;  // the rest only waits longer
  expect_late_rank_is_culprit("ring", 2);
  expect_late_rank_is_culprit("tree", 1);
  expect_late_rank_is_culprit("tree", 2);
  expect_late_rank_is_culprit("owner-fold", 0);
}

/// By `staged` the two ranks that have begun wait for each other's data too.
TEST(Deadline, names_no_rank_that_waits_too) {
  const Env env{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "staged"}}};
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 1000;
  ranks::run_ranks(
      3,
      [&](Rank& self) {
        std::vector<float> memory(large);
        self.meet();
        if (self.rank != 2) {
          EXPECT_EQ(hocketTimeout, hocketAllReduce(memory.data(), memory.data(), memory.size(),
                                                   hocketFloat32, hocketSum, self.comm, nullptr));
          const std::string text = hocketGetLastError(self.comm);
          const std::size_t named = text.find("it still waits for rank 2 (host ");
          EXPECT_NE(std::string::npos, named) << text;
          EXPECT_EQ(std::string::npos, text.find("), rank", named)) << text;
        }
        self.meet();
      },
      config);
}

/// Two communicators' receive buffers share a page. The operation of one fails and takes the page
/// away from peers, while the other's has told its peers to write there.
TEST(SharedPage, is_an_error_for_the_operation_that_would_lose_data) {
  const ranks::Env direct(ranks::Env::List{{"HOCKET_ALGORITHM", "direct"}});
  hocketConfig_t hasty = ranks::patient_config();
  // Ends the operation that rank 1 never joins. The split needs less.
  hasty.deadline_ms = ranks::sanitized ? 3000 : 1000;
  const auto body = [](Rank& self) {
    constexpr std::size_t count = 3000;
    hocketConfig_t patient = ranks::patient_config();
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, self.rank, &other, &patient));
    float* memory = nullptr;
    ASSERT_HOCKET(hocketMemAlloc(reinterpret_cast<void**>(&memory), 3 * count * sizeof(float)));
    float *in = memory, *failing = memory + count, *healthy = memory + 2 * count;
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    self.meet();
    if (self.rank == 0) {
      EXPECT_HOCKET(hocketAllReduce(in, healthy, count, hocketFloat32, hocketSum, other, stream));
      EXPECT_EQ(hocketTimeout,
                hocketAllReduce(in, failing, count, hocketFloat32, hocketSum, self.comm, nullptr));
    }
    self.meet();
    if (self.rank == 1) {
      // Its own result is complete; it may get rank 0's error or not.
      (void)hocketAllReduce(in, healthy, count, hocketFloat32, hocketSum, other, stream);
      (void)hocketStreamSynchronize(stream);
    } else {
      EXPECT_EQ(hocketRemoteError, hocketStreamSynchronize(stream));
      const std::string text = hocketGetLastError(other);
      EXPECT_NE(std::string::npos, text.find("different pages")) << text;
    }
    self.meet();
    hocketStreamDestroy(stream);
    EXPECT_HOCKET(hocketCommDestroy(other));
    self.meet();
    EXPECT_HOCKET(hocketMemFree(memory));
  };
  ranks::run_ranks(2, body, hasty);
}

/// Adds once the flag `go_on`, its context, is set.
void add_later(void* go_on, const void* in, void* inout, size_t count,
               hocketDataType_t /*datatype*/) {
  while (!*static_cast<std::atomic<bool>*>(go_on)) std::this_thread::yield();
  const auto* const from = static_cast<const std::uint32_t*>(in);
  auto* const to = static_cast<std::uint32_t*>(inout);
  std::transform(from, from + count, to, to, std::plus<>());
}

/// As LateWriter (tests/faults) for processes: rank 1, a thread of the same process, is in the
/// middle of a direct all-reduce when rank 0's deadline passes. It writes its block into the output
/// of rank 0 after that.
TEST(LateThread, does_not_reach_a_buffer_after_its_error) {
  if (tests::thread_sanitized) GTEST_SKIP() << "there the ranks use one mapping (peer_memory.cc)";
  const ranks::Env direct(ranks::Env::List{{"HOCKET_ALGORITHM", "direct"}});
  hocketConfig_t hasty = ranks::patient_config();
  hasty.deadline_ms = 1000;
  std::atomic<bool> go_on{true};
  const auto body = [&go_on](Rank& self) {
    constexpr std::size_t count = 1 << 15;
    std::uint32_t* words = nullptr;
    ASSERT_HOCKET(hocketMemAlloc(reinterpret_cast<void**>(&words), count * sizeof *words));
    std::atomic<bool> at_once{true};
    hocketRedOp_t sum{};
    ASSERT_HOCKET(hocketRedOpCreateUser(&sum, add_later, self.rank == 0 ? &at_once : &go_on, 1,
                                        "sum", self.comm));
    const auto reduce = [&] {
      std::fill(words, words + count, 5);
      return hocketAllReduce(words, words, count, hocketUint32, sum, self.comm, nullptr);
    };
    ASSERT_HOCKET(reduce());  // each has mapped the other's memory
    self.meet();
    if (self.rank == 1) go_on = false;
    const hocketResult_t result = reduce();
    if (self.rank == 0) {
      EXPECT_EQ(hocketTimeout, result);
    }
    const std::vector<std::uint32_t> then(words, words + count);
    if (self.rank == 0) go_on = true;
    self.meet();
    EXPECT_TRUE(std::equal(then.begin(), then.end(), words)) << "rank " << self.rank;
    if (self.rank == 0) {
      EXPECT_EQ(5U, words[count - 1]) << "rank 1 has not added its block in time";
    }
    self.meet();
    EXPECT_HOCKET(hocketMemFree(words));
  };
  ranks::run_ranks(2, body, hasty);
}

TEST_P(Endings, who_waits_for_a_rank_that_left_is_told) {
  ranks::run_ranks(3, [](Rank& self) {
    float x = 1;
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
    if (self.rank == 2) {
      EXPECT_HOCKET(hocketCommDestroy(self.comm));
      self.comm = nullptr;
      return;
    }
    EXPECT_EQ(hocketRemoteError,
              hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
    const std::string text = hocketGetLastError(self.comm);
    EXPECT_NE(std::string::npos, text.find("rank 2")) << text;
    int culprit = -1;
    EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
    EXPECT_EQ(2, culprit) << text;
    self.meet();
  });
}

/// A rank's last message or collective must arrive although the rank leaves at once.
TEST_P(Endings, what_was_sent_before_leaving_arrives) {
  for (int i = 0; i < (ranks::sanitized ? 5 : 20); ++i) {
    for (int n : {2, 5}) {
      ranks::run_ranks(n, [&](Rank& self) {
        std::vector<int> x(i % 2 ? 2000 : 2, self.rank);
        const int last = self.ranks - 1;
        if (self.rank == 0) {
          EXPECT_HOCKET(hocketSend(x.data(), x.size(), hocketInt32, last, self.comm, nullptr));
        } else if (self.rank == last) {
          EXPECT_HOCKET(hocketRecv(x.data(), x.size(), hocketInt32, 0, self.comm, nullptr));
          EXPECT_EQ(0, x[1]);
        }
        EXPECT_HOCKET(
            hocketBroadcast(x.data(), x.data(), x.size(), hocketInt32, last, self.comm, nullptr));
        EXPECT_EQ(0, x.back());
        EXPECT_HOCKET(hocketCommDestroy(self.comm));
        self.comm = nullptr;
      });
    }
    if (HasFailure()) return;
  }
}

TEST_P(Endings, finalize_waits_for_all_and_leaves_only_queries) {
  ranks::run_ranks(3, [](Rank& self) {
    float x = 1;
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, stream));
    EXPECT_HOCKET(hocketCommFinalize(self.comm));
    EXPECT_EQ(3, x) << "finalize waits for the streams' work on the communicator";
    EXPECT_EQ(hocketInvalidUsage,
              hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
    int rank = -1;
    EXPECT_HOCKET(hocketCommUserRank(self.comm, &rank));
    EXPECT_EQ(self.rank, rank);
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

/// What a user operator tells that it is called, and waits for.
struct Pause {
  std::atomic<bool> begun{false}, ends{false};
};

void add_after_pause(void* context, const void* in, void* inout, size_t count,
                     hocketDataType_t /*datatype*/) {
  auto& pause = *static_cast<Pause*>(context);
  pause.begun = true;
  while (!pause.ends) std::this_thread::yield();
  const auto* const from = static_cast<const std::int32_t*>(in);
  auto* const to = static_cast<std::int32_t*>(inout);
  std::transform(from, from + count, to, to, std::plus<>());
}

/// Each call, while another thread of rank 0 is inside a call.
void expect_all_refused(Rank& self) {
  const auto refused = hocketInvalidUsage;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const hocketComm_t comm = self.comm;
  EXPECT_EQ(refused, hocketAllReduce(x, x, 8, hocketFloat32, hocketSum, comm, nullptr));
  EXPECT_EQ(refused, hocketBroadcast(x, x, 8, hocketFloat32, 0, comm, nullptr));
  EXPECT_EQ(refused, hocketAllGather(x, x + 2, 2, hocketFloat32, comm, nullptr));
  EXPECT_EQ(refused, hocketReduceScatter(x, x + 4, 2, hocketFloat32, hocketSum, comm, nullptr));
  EXPECT_EQ(refused, hocketBarrier(comm, nullptr));
  EXPECT_EQ(refused, hocketSend(x, 1, hocketFloat32, 1, comm, nullptr));
  EXPECT_EQ(refused, hocketRecv(x, 1, hocketFloat32, 1, comm, nullptr));
  hocketGroupStart();  // of messages of the rank to itself, which could run at any time
  EXPECT_HOCKET(hocketSend(x, 1, hocketFloat32, 0, comm, nullptr));
  EXPECT_HOCKET(hocketRecv(x + 1, 1, hocketFloat32, 0, comm, nullptr));
  EXPECT_EQ(refused, hocketGroupEnd());
  hocketComm_t made = nullptr;
  EXPECT_EQ(refused, hocketCommSplit(comm, 0, 0, &made, nullptr));
  EXPECT_EQ(nullptr, made);
  EXPECT_EQ(refused, hocketCommFinalize(comm));
  const std::string text = hocketGetLastError(nullptr);
  EXPECT_NE(std::string::npos, text.find("another thread")) << text;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(i + 1, x[i]);
}

/// Nothing of the refused calls has remained.
void expect_next_call_runs(Rank& self) {
  int sum = 1;
  EXPECT_HOCKET(hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, self.comm, nullptr));
  EXPECT_EQ(2, sum);
}

/// The operator of rank 0 says that the thread is inside.
TEST_P(Endings, a_second_thread_is_refused_while_another_thread_is_inside_a_call) {
  ranks::run_ranks(2, [](Rank& self) {
    Pause pause;
    pause.ends = self.rank == 1;
    hocketRedOp_t add{};
    ASSERT_HOCKET(hocketRedOpCreateUser(&add, add_after_pause, &pause, 1, "add", self.comm));
    const int mine = self.rank + 1;
    int sum = 0;
    const auto reduce = [&] {
      EXPECT_HOCKET(hocketReduce(&mine, &sum, 1, hocketInt32, add, 0, self.comm, nullptr));
    };
    if (self.rank == 0) {
      std::thread inside([&] {
        reduce();
        pause.begun = true;  // also if the call failed before the operator
      });
      while (!pause.begun) std::this_thread::yield();
      expect_all_refused(self);
      pause.ends = true;
      inside.join();
      EXPECT_EQ(3, sum);
    } else {
      reduce();
    }
    expect_next_call_runs(self);
  });
}

/// A message that rank 1 has received says that the thread of rank 0 is inside.
TEST_P(Endings, a_second_thread_is_refused_while_another_thread_is_inside_a_group) {
  ranks::run_ranks(2, [](Rank& self) {
    int message = 7, sum = 1;
    const auto reduce = [&] {
      return hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, self.comm, nullptr);
    };
    if (self.rank == 0) {
      std::thread inside([&] {
        hocketGroupStart();
        EXPECT_HOCKET(hocketSend(&message, 1, hocketInt32, 1, self.comm, nullptr));
        EXPECT_HOCKET(reduce());
        EXPECT_HOCKET(hocketGroupEnd());
      });
      self.meet();
      expect_all_refused(self);
      self.meet();
      inside.join();
    } else {
      EXPECT_HOCKET(hocketRecv(&message, 1, hocketInt32, 0, self.comm, nullptr));
      self.meet();
      self.meet();
      EXPECT_HOCKET(reduce());
    }
    EXPECT_EQ(2, sum);
    expect_next_call_runs(self);
  });
}
INSTANTIATE_TEST_SUITE_P(Transports, Endings, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
