// Calls that repeat the call before, with calls of other kinds in between.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "matrix/ranks.h"
#include "seed.h"

namespace {

using ranks::Env;
using ranks::Rank;

/// Each makes a call in which the rank gives `value` + its number, and looks at the result.
void broadcast(Rank& self, int value) {
  int x[2] = {value + self.rank, value + self.rank};
  EXPECT_HOCKET(hocketBroadcast(x, x, 2, hocketInt32, 1, self.comm, nullptr));
  EXPECT_EQ(value + 1, x[0]);
  EXPECT_EQ(value + 1, x[1]);
}
void all_reduce(Rank& self, int value) {
  const int in = value + self.rank;
  int sum = 0;
  EXPECT_HOCKET(hocketAllReduce(&in, &sum, 1, hocketInt32, hocketSum, self.comm, nullptr));
  EXPECT_EQ(3 * value + 3, sum);
}
void gather(Rank& self, int value) {
  const int in = value + self.rank;
  int all[3] = {-1, -1, -1};
  EXPECT_HOCKET(hocketGather(&in, all, 1, hocketInt32, 2, self.comm, nullptr));
  for (int r = 0; r < 3; ++r) EXPECT_EQ(self.rank == 2 ? value + r : -1, all[r]);
}
void barrier(Rank& self, int /*value*/) { EXPECT_HOCKET(hocketBarrier(self.comm, nullptr)); }
void reduce_much(Rank& self, int value) {
  const std::vector<int> in(5000, value + self.rank);
  std::vector<int> sum(in.size(), -1);
  EXPECT_HOCKET(hocketReduce(in.data(), sum.data(), in.size(), hocketInt32, hocketSum, 0, self.comm,
                             nullptr));
  EXPECT_EQ(std::vector<int>(in.size(), self.rank == 0 ? 3 * value + 3 : -1), sum);
}

/// After the first call of a kind, a rank keeps what the next calls of that kind need; nothing of
/// it may be left for a call of another kind.
TEST(Repeated, calls_of_one_kind_leave_nothing_for_calls_of_another_kind) {
  ranks::run_ranks(3, [](Rank& self) {
    int value = 100;
    for (int round = 0; round < 3; ++round) {
      for (const auto call : {broadcast, all_reduce, gather, barrier, reduce_much, broadcast}) {
        for (int times = 0; times < 4; ++times) call(self, ++value);
      }
    }
  });
}

class RepeatedMessages : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

/// The buffers of a rank: blocks in memory of malloc and in memory of hocketMemAlloc.
class Buffers {
 public:
  static constexpr std::size_t most = 300'000;

  Buffers() : ordinary_(2 * most) {
    EXPECT_HOCKET(hocketMemAlloc(&mapped_, 2 * most * sizeof(std::int32_t)));
  }
  ~Buffers() { EXPECT_HOCKET(hocketMemFree(mapped_)); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  /// number: 0 to 3.
  std::int32_t* block(std::size_t number) {
    std::int32_t* const first = number < 2 ? ordinary_.data() : static_cast<std::int32_t*>(mapped_);
    return first + number % 2 * most;
  }

 private:
  std::vector<std::int32_t> ordinary_;
  void* mapped_ = nullptr;
};

/// A rank keeps what its latest send and its latest receive needed. The next send may have another
/// buffer, which may be memory of another kind, another count and another peer.
TEST_P(RepeatedMessages, have_the_bytes_of_their_own_buffers) {
  const std::uint64_t seed = tests::seed();
  ranks::run_ranks(3, [seed](Rank& self) {
    std::mt19937_64 random(seed);  // the same on every rank
    Buffers buffers;
    int from = 0, to = 1;
    std::size_t count = 1;
    for (int i = 0; i < 1500; ++i) {
      if (random() % 8 == 0) {
        constexpr std::size_t counts[] = {0, 1, 3, 100, 5000, 20'000, Buffers::most};
        count = counts[random() % std::size(counts)];
      }
      if (random() % 6 == 0) {
        from = static_cast<int>(random() % 3);
        to = (from + 1 + static_cast<int>(random() % 2)) % 3;
      } else if (random() % 2 == 0) {
        std::swap(from, to);
      }
      std::int32_t* const block = buffers.block(random() % 4);
      if (self.rank == from) {
        std::iota(block, block + count, 7 * i);
        EXPECT_HOCKET(hocketSend(block, count, hocketInt32, to, self.comm, nullptr));
        std::fill_n(block, count, -2);  // when a send has ended, the buffer is the caller's
      } else if (self.rank == to) {
        std::vector<std::int32_t> expected(count);
        std::iota(expected.begin(), expected.end(), 7 * i);
        std::fill_n(block, count, -1);
        EXPECT_HOCKET(hocketRecv(block, count, hocketInt32, from, self.comm, nullptr));
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), block))
            << "message " << i << " of " << count << " from " << from << " to " << to;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, RepeatedMessages, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
