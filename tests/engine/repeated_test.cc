// Calls that repeat the call before, with calls of other kinds in between.
#include <vector>

#include "matrix/ranks.h"

namespace {

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

}  // namespace
