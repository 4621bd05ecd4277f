// Ranks that make different calls: each gets hocketMismatch with a sentence that quotes both calls.
// A rank whose call has returned already gets it from its next call. No rank hangs.
#include <cstdlib>
#include <memory>

#include "matrix/ranks.h"

namespace {

using ranks::Env;
using ranks::hear;
using ranks::Rank;

struct Call {
  const char* quoted;  // how the error names it
  std::function<hocketResult_t(hocketComm_t)> make;
};

/// Memory that the operating system has cleared: without optimization a vector of this size would
/// take longer than the calls.
struct Free {
  void operator()(float* memory) const { std::free(memory); }
};
using Floats = std::unique_ptr<float, Free>;
Floats zeros(std::size_t count) {
  return Floats(static_cast<float*>(std::calloc(count, sizeof(float))));
}
float* buffer() {
  thread_local const Floats memory = zeros(400'000);
  return memory.get();
}
float* other_buffer() {
  thread_local const Floats memory = zeros(400'000 * 4);
  return memory.get();
}

Call all_reduce(std::size_t count, hocketDataType_t type, hocketRedOp_t op, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            void* const memory = buffer();
            return hocketAllReduce(memory, memory, count, type, op, comm, nullptr);
          }};
}
Call broadcast(int root, std::size_t count = 10) {
  return {"broadcast", [=](hocketComm_t comm) {
            void* const memory = buffer();
            return hocketBroadcast(memory, memory, count, hocketFloat32, root, comm, nullptr);
          }};
}
Call all_gather(std::size_t count) {
  return {"all-gather", [=](hocketComm_t comm) {
            return hocketAllGather(buffer(), other_buffer(), count, hocketFloat32, comm, nullptr);
          }};
}
Call reduce_scatter(std::size_t count) {
  return {"reduce-scatter", [=](hocketComm_t comm) {
            return hocketReduceScatter(other_buffer(), buffer(), count, hocketFloat32, hocketSum,
                                       comm, nullptr);
          }};
}
Call barrier() {
  return {"barrier", [](hocketComm_t comm) { return hocketBarrier(comm, nullptr); }};
}

Call reduce(int root, std::size_t count, hocketRedOp_t op, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            return hocketReduce(buffer(), other_buffer(), count, hocketFloat32, op, root, comm,
                                nullptr);
          }};
}
Call gather(int root, std::size_t count, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            return hocketGather(buffer(), other_buffer(), count, hocketFloat32, root, comm,
                                nullptr);
          }};
}
Call scatter(int root, std::size_t count, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            return hocketScatter(other_buffer(), buffer(), count, hocketFloat32, root, comm,
                                 nullptr);
          }};
}
Call all_to_all(std::size_t count, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            static thread_local std::vector<float> input(400'000 * 4);
            return hocketAlltoAll(input.data(), other_buffer(), count, hocketFloat32, comm,
                                  nullptr);
          }};
}
int ranks_of(hocketComm_t comm) {
  int ranks = 0;
  EXPECT_HOCKET(hocketCommCount(comm, &ranks));
  return ranks;
}
int rank_of(hocketComm_t comm) {
  int rank = 0;
  EXPECT_HOCKET(hocketCommUserRank(comm, &rank));
  return rank;
}
/// first: the count of the block of rank 0; all other blocks, of up to 4 ranks, have `others`.
std::vector<std::size_t> counts_of(std::size_t first, std::size_t others) {
  return {first, others, others, others};
}
Call all_gather_v(std::size_t first, std::size_t others, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            const auto counts = counts_of(first, others);
            return hocketAllGatherV(buffer(), counts[static_cast<std::size_t>(rank_of(comm))],
                                    other_buffer(), counts.data(), nullptr, hocketFloat32, comm,
                                    nullptr);
          }};
}
Call reduce_scatter_v(std::size_t first, std::size_t others, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            return hocketReduceScatterV(other_buffer(), buffer(), counts_of(first, others).data(),
                                        hocketFloat32, hocketSum, comm, nullptr);
          }};
}
/// To the last rank, which expects `expected` elements of each rank.
Call gather_v(std::size_t sent, std::size_t expected, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            const int root = ranks_of(comm) - 1;
            const bool is_root = rank_of(comm) == root;
            return hocketGatherV(buffer(), is_root ? expected : sent, other_buffer(),
                                 counts_of(expected, expected).data(), nullptr, hocketFloat32, root,
                                 comm, nullptr);
          }};
}
/// From the last rank.
Call scatter_v(std::size_t sent, std::size_t expected, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            const int root = ranks_of(comm) - 1;
            const bool is_root = rank_of(comm) == root;
            return hocketScatterV(other_buffer(), counts_of(sent, sent).data(), nullptr, buffer(),
                                  is_root ? sent : expected, hocketFloat32, root, comm, nullptr);
          }};
}
Call all_to_all_v(std::size_t sent, std::size_t expected, const char* quoted) {
  return {quoted, [=](hocketComm_t comm) {
            std::vector<std::size_t> to(4, sent), from(4, expected);
            const auto own = static_cast<std::size_t>(rank_of(comm));
            to[own] = from[own] = 1;
            static thread_local std::vector<float> input(400'000 * 4);
            return hocketAlltoAllV(input.data(), to.data(), nullptr, other_buffer(), from.data(),
                                   nullptr, hocketFloat32, comm, nullptr);
          }};
}

struct Pair {
  const char* name;
  Call most, odd;
};

std::vector<Pair> pairs() {
  const auto f32 = hocketFloat32;
  return {
      {"count", all_reduce(10, f32, hocketSum, "10 float32"),
       all_reduce(11, f32, hocketSum, "11 float32")},
      {"large count", all_reduce(400'000, f32, hocketSum, "400000 float32"),
       all_reduce(399'999, f32, hocketSum, "399999 float32")},
      {"small and large", all_reduce(1, f32, hocketSum, "1 float32"),
       all_reduce(400'000, f32, hocketSum, "400000 float32")},
      {"nothing and something", all_reduce(0, f32, hocketSum, "0 float32"),
       all_reduce(5, f32, hocketSum, "5 float32")},
      {"type", all_reduce(10, f32, hocketSum, "float32"),
       all_reduce(10, hocketInt32, hocketSum, "int32")},
      {"operator", all_reduce(10, f32, hocketSum, "sum"), all_reduce(10, f32, hocketMin, "min")},
      {"root", broadcast(0), broadcast(1)},
      {"large broadcast's root", broadcast(0, 300'000), broadcast(1, 300'000)},
      {"reduce against barrier", all_reduce(10, f32, hocketSum, "all-reduce"), barrier()},
      {"barrier against reduce", barrier(), all_reduce(10, f32, hocketSum, "all-reduce")},
      {"broadcast against gather", broadcast(0), all_gather(10)},
      {"gather against scatter", all_gather(1000), reduce_scatter(1000)},
      {"reduce against scatter", all_reduce(40'000, f32, hocketSum, "all-reduce"),
       reduce_scatter(20'000)},
      {"a reduce's root", reduce(0, 10, hocketSum, "sum to root 0"),
       reduce(1, 10, hocketSum, "sum to root 1")},
      {"a reduce's count", reduce(0, 10, hocketSum, "reduce of 10 float32"),
       reduce(0, 11, hocketSum, "reduce of 11 float32")},
      {"a large reduce's count", reduce(1, 300'000, hocketSum, "300000 float32"),
       reduce(1, 299'999, hocketSum, "299999 float32")},
      {"a reduce's operator", reduce(0, 10, hocketSum, "sum to root 0"),
       reduce(0, 10, hocketMax, "max to root 0")},
      {"reduce against all-reduce", reduce(0, 10, hocketSum, "reduce of 10 float32, sum to root 0"),
       all_reduce(10, f32, hocketSum, "all-reduce of 10 float32")},
      {"a gather's root", gather(0, 10, "10 float32 to root 0"), gather(1, 10, "to root 1")},
      {"a gather's count", gather(0, 10, "gather of 10 float32"), gather(0, 9, "gather of 9 ")},
      {"a scatter's root", scatter(0, 10, "10 float32 from root 0"), scatter(1, 10, "from root 1")},
      {"a scatter's count", scatter(0, 10, "scatter of 10 "), scatter(0, 9, "scatter of 9 ")},
      {"an all-to-all's count", all_to_all(10, "all-to-all of 10 "),
       all_to_all(100'000, "all-to-all of 100000 ")},
      {"blocks of an all-gather", all_gather_v(1, 2, "all-gather-v of"),
       all_gather_v(2, 1, "all-gather-v of")},
      {"large blocks of an all-gather", all_gather_v(100'000, 2, "all-gather-v of"),
       all_gather_v(2, 100'000, "all-gather-v of")},
      {"blocks and equal blocks", all_gather_v(5, 5, "all-gather-v of"), all_gather(5)},
      {"blocks of a reduce-scatter", reduce_scatter_v(3, 1, "reduce-scatter-v of"),
       reduce_scatter_v(1, 3, "reduce-scatter-v of")},
      {"blocks of a gather", gather_v(7, 7, "gather-v of float32 to root"),
       gather_v(8, 8, "gather-v of float32 to root")},
      {"large blocks of a gather", gather_v(99'999, 99'999, "gather-v of float32 to root"),
       gather_v(100'000, 100'000, "gather-v of float32 to root")},
      {"blocks of a scatter", scatter_v(7, 7, "scatter-v of float32 from root"),
       scatter_v(0, 0, "scatter-v of float32 from root")},
      {"blocks of an all-to-all", all_to_all_v(7, 7, "all-to-all-v of float32"),
       all_to_all_v(7, 6, "all-to-all-v of float32")},
      {"large blocks of an all-to-all", all_to_all_v(100'000, 100'000, "all-to-all-v of float32"),
       all_to_all_v(1, 100'000, "all-to-all-v of float32")},
      {"a small block where a large one is awaited", gather_v(7, 7, "gather-v of float32 to root"),
       gather_v(100'000, 100'000, "gather-v of float32 to root")},
      {"a large block where a small one is awaited",
       gather_v(100'000, 100'000, "gather-v of float32 to root"),
       gather_v(7, 7, "gather-v of float32 to root")},
      {"a small block of a scatter", scatter_v(100'000, 100'000, "scatter-v of float32 from root"),
       scatter_v(7, 7, "scatter-v of float32 from root")},
      {"a large block of a scatter", scatter_v(7, 7, "scatter-v of float32 from root"),
       scatter_v(100'000, 100'000, "scatter-v of float32 from root")},
      {"a gather of blocks against a barrier", barrier(), gather_v(1, 1, "gather-v of float32")},
      {"an exchange of blocks against an all-reduce", all_to_all_v(1, 1, "all-to-all-v of float32"),
       all_reduce(10, f32, hocketSum, "all-reduce of 10 float32")},
  };
}

/// Slow builds leave pairs out: more ranks add waits, not cases, and for the thread sanitizer each
/// pair takes the same path of its threads.
std::size_t step(int ranks) {
  if (tests::thread_sanitized) return ranks == 4 ? 4 : 2;
  return tests::sanitized && ranks == 4 ? 4 : 1;
}

class Mismatch : public testing::TestWithParam<const char*> {};

TEST_P(Mismatch, is_told_to_every_rank_and_quotes_both_sides) {
  const Env env{{{"HOCKET_TRANSPORT", GetParam()}}};
  for (int n : {2, 4}) {
    const std::vector<Pair> all = pairs();
    for (std::size_t i = 0; i < all.size(); i += step(n)) {
      const Pair& pair = all[i];
      SCOPED_TRACE(std::string(pair.name) + ", " + std::to_string(n) + " ranks");
      hocketConfig_t config = ranks::patient_config();
      config.deadline_ms = 30'000;
      ranks::run_ranks(
          n,
          [&](Rank& self) {
            const int odd = n - 1;
            // So many that two ranks have a second TCP connection, on which a message may overtake.
            const int before = std::string(GetParam()) == "tcp" ? 70 : 1;
            for (int i = 0; i < before; ++i) {
              EXPECT_HOCKET(all_reduce(3, hocketFloat32, hocketSum, "").make(self.comm));
            }
            self.meet();  // an error of the next call would end this one where it still runs
            const Call& call = self.rank == odd ? pair.odd : pair.most;
            hocketResult_t result = call.make(self.comm);
            // A rank whose call had returned before the mismatch was known gets it from a later
            // call: mostly from the next one.
            for (int later = 0; later < 128 && result == hocketSuccess; ++later) {
              result = hocketBarrier(self.comm, nullptr);
            }
            const std::string text = hocketGetLastError(self.comm);
            EXPECT_EQ(hocketMismatch, result)
                << pair.name << ", rank " << self.rank << " of " << n << ": " << text;
            EXPECT_NE(std::string::npos, text.find(pair.most.quoted)) << pair.name << ": " << text;
            EXPECT_NE(std::string::npos, text.find(pair.odd.quoted)) << pair.name << ": " << text;
            // It stays.
            EXPECT_EQ(hocketMismatch, hocketBarrier(self.comm, nullptr)) << pair.name;
            self.meet();
          },
          config);
      if (HasFailure()) return;
    }
  }
}

/// A rank stages its data before its peers arrive. It looks at no data of a peer that is in another
/// call, whose flags are the same.
TEST(LargeMismatch, ends_the_call_that_would_read_data_of_another_call) {
  const Env env{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "staged"}}};
  for (const int n : {2, 3}) {
    ranks::run_ranks(n, [&](Rank& self) {
      const std::size_t count = self.rank == n - 1 ? 100'001 : 100'000;
      EXPECT_EQ(hocketMismatch, all_reduce(count, hocketFloat32, hocketSum, "").make(self.comm));
      self.meet();
    });
    ranks::run_ranks(n, [&](Rank& self) {
      const Call call = self.rank == 0 ? gather(0, 90'000, "") : broadcast(0, 90'000);
      EXPECT_EQ(hocketMismatch, call.make(self.comm));
      self.meet();
    });
  }
}

/// The ranks' calls read alike: the error tells what differs, and how many bytes a pair disagrees
/// about.
TEST_P(Mismatch, of_the_counts_of_blocks_tells_what_differs) {
  const Env env{{{"HOCKET_TRANSPORT", GetParam()}}};
  struct Sides {
    Call one, other;
    const char* told;
  };
  const Sides all[] = {
      {all_gather_v(1, 2, ""), all_gather_v(2, 1, ""), "their counts of blocks differ"},
      {reduce_scatter_v(1, 2, ""), reduce_scatter_v(2, 1, ""), "their counts of blocks differ"},
      {gather_v(3, 3, ""), gather_v(5, 5, ""), "20 bytes"},
      {scatter_v(3, 3, ""), scatter_v(5, 5, ""), "12 bytes"},
      {all_to_all_v(3, 3, ""), all_to_all_v(3, 5, ""), "20 bytes"},
  };
  for (const Sides& sides : all) {
    ranks::run_ranks(2, [&](Rank& self) {
      hocketResult_t result = (self.rank == 0 ? sides.one : sides.other).make(self.comm);
      if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
      const std::string text = hocketGetLastError(self.comm);
      EXPECT_EQ(hocketMismatch, result) << text;
      EXPECT_NE(std::string::npos, text.find(sides.told)) << text;
      self.meet();
    });
  }
}

TEST_P(Mismatch, stays_the_error_when_another_one_follows) {
  const Env env{{{"HOCKET_TRANSPORT", GetParam()}}};
  ranks::run_ranks(3, [](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &other, nullptr));
    const std::size_t count = self.rank == 0 ? 3 : 4;
    hocketResult_t result = all_reduce(count, hocketFloat32, hocketSum, "").make(self.comm);
    if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
    EXPECT_EQ(hocketMismatch, result);
    const std::string first = hocketGetLastError(self.comm);
    int culprit = -1;
    EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
    self.meet();
    if (self.rank == 1) {
      EXPECT_HOCKET(hocketCommAbort(self.comm));
      EXPECT_HOCKET(hocketCommAbort(other));
    }
    EXPECT_EQ(hocketAborted, hear(other));  // so this rank has heard of the abort before it, too
    EXPECT_EQ(hocketMismatch, hear(self.comm));
    EXPECT_EQ(hocketMismatch, hocketBarrier(self.comm, nullptr));
    EXPECT_EQ(first, hocketGetLastError(self.comm));
    int culprit_now = -1;
    EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit_now));
    EXPECT_EQ(culprit, culprit_now);
    self.meet();
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

TEST_P(Mismatch, of_a_message_is_told_to_both) {
  const Env env{{{"HOCKET_TRANSPORT", GetParam()}}};
  struct Sides {
    std::size_t sent, received;
    hocketDataType_t sent_type, received_type;
  };
  for (const Sides& sides : {Sides{4, 5, hocketInt32, hocketInt32},
                             {4, 4, hocketInt32, hocketFloat32},
                             {300'000, 5, hocketInt32, hocketInt32},
                             {5, 300'000, hocketInt32, hocketInt32},
                             {300'000, 299'999, hocketInt32, hocketInt32}}) {
    ranks::run_ranks(2, [&](Rank& self) {
      void* const memory = buffer();
      for (int i = 0; i < 4; ++i) {  // the first message that follows is like these on one side
        EXPECT_HOCKET(self.rank == 0 ? hocketSend(memory, 4, hocketInt32, 1, self.comm, nullptr)
                                     : hocketRecv(memory, 4, hocketInt32, 0, self.comm, nullptr));
      }
      hocketResult_t result =
          self.rank == 0
              ? hocketSend(memory, sides.sent, sides.sent_type, 1, self.comm, nullptr)
              : hocketRecv(memory, sides.received, sides.received_type, 0, self.comm, nullptr);
      if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
      const std::string text = hocketGetLastError(self.comm);
      EXPECT_EQ(hocketMismatch, result) << "rank " << self.rank << ": " << text;
      EXPECT_NE(std::string::npos, text.find(std::to_string(sides.sent) + " ")) << text;
      EXPECT_NE(std::string::npos, text.find(std::to_string(sides.received) + " ")) << text;
      EXPECT_NE(std::string::npos, text.find("called send of")) << text;
      EXPECT_NE(std::string::npos, text.find("called recv of")) << text;
      int culprit = -1;
      EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
      EXPECT_EQ(1 - self.rank, culprit) << text;
      self.meet();
    });
  }
}

TEST_P(Mismatch, names_the_function_and_numbers_the_users_calls) {
  const Env env{{{"HOCKET_TRANSPORT", GetParam()}}};
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t part = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &part, nullptr));  // it is no operation
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    int x = self.rank;
    // A message, which only one side may count among its collectives.
    EXPECT_HOCKET(self.rank == 0 ? hocketSend(&x, 1, hocketInt32, 1, self.comm, nullptr)
                                 : hocketRecv(&x, 1, hocketInt32, 0, self.comm, nullptr));
    const std::size_t count = self.rank == 0 ? 3 : 4;
    hocketResult_t result = all_reduce(count, hocketFloat32, hocketSum, "").make(self.comm);
    EXPECT_EQ(hocketMismatch, result);
    const std::string text = hocketGetLastError(self.comm);
    EXPECT_EQ(0u, text.find("hocketAllReduce: ")) << text;
    EXPECT_NE(std::string::npos, text.find("3 float32, sum (operation 3)")) << text;
    EXPECT_NE(std::string::npos, text.find("4 float32, sum (operation 3)")) << text;
    // The part has numbers of its own.
    result = all_reduce(count, hocketFloat32, hocketSum, "").make(part);
    EXPECT_EQ(hocketMismatch, result);
    const std::string other = hocketGetLastError(part);
    EXPECT_NE(std::string::npos, other.find("(operation 1)")) << other;
    self.meet();
    EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Mismatch, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
