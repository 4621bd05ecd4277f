// With deterministic = 1 the results are those of a fold in rank order, bit for bit, whatever the
// size, transport, memory and algorithm.
#include "matrix/world.h"

namespace matrix {
namespace {

using ranks::Env;
using ranks::Rank;

class Deterministic : public testing::TestWithParam<int> {};

TEST_P(Deterministic, bits_do_not_depend_on_size_memory_or_transport) {
  const int n = GetParam();
  const std::size_t most = tests::thread_sanitized ? 6'000 : ranks::sanitized ? 20'000 : 70'000;
  struct Setting {
    const char *transport, *algorithm;
  };
  for (const Setting& setting : {Setting{"shm", ""},
                                 {"tcp", ""},
                                 {"shm", "ring"},
                                 {"tcp", "tree"},
                                 {"shm", "direct"},
                                 {"tcp", "owner-fold"}}) {
    const Env env(
        {{"HOCKET_TRANSPORT", setting.transport}, {"HOCKET_ALGORITHM", setting.algorithm}});
    SCOPED_TRACE(std::string(setting.transport) + " " + setting.algorithm);
    hocketConfig_t config = ranks::patient_config();
    config.deterministic = 1;
    SharedLedger shared{};
    Ledger ledger(n, shared, false);
    ranks::run_ranks(
        n,
        [&](Rank& self) {
          World world(self, ledger, most * 8 * static_cast<std::size_t>(n));
          std::uint64_t number = 0;
          for (hocketDataType_t type : {hocketFloat32, hocketFloat64, hocketFloat16}) {
            for (hocketRedOp_t op : {hocketSum, hocketAvg, hocketProd, reference::pre_mul_sum}) {
              // One stream of data: each count is a prefix of the next.
              for (std::size_t count : {std::size_t{5}, std::size_t{3000}, most}) {
                Case c;
                c.what = number % 4 == 3 ? What::reduce_scatter : What::all_reduce;
                c.type = type;
                c.op = op;
                c.count = count;
                c.data = Data::any;
                c.alloc = number++ & 1;
                c.seed = 77;
                world.run(c);
                if (HasFailure()) break;
              }
            }
          }
          self.meet();
        },
        config);
    // World held each result against the fold in rank order, unless an algorithm with another
    // order had run.
    EXPECT_FALSE(ledger.algorithms.contains("ring"));
    EXPECT_FALSE(ledger.algorithms.contains("tree"));
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Deterministic, testing::Values(2, 3, 6));

/// More elements than 32 bits count.
TEST(Huge, all_reduce_of_more_than_2_to_the_32_elements) {
  if (!ranks::long_tests() || ranks::sanitized) {
    GTEST_SKIP() << "it takes 9 GB and a minute: LONG_TESTS=1";
  }
  constexpr std::size_t count = (std::size_t{1} << 32) + 7;
  ranks::run_ranks(2, [](Rank& self) {
    void* memory = nullptr;
    ASSERT_HOCKET(hocketMemAlloc(&memory, count));
    auto* const x = static_cast<std::uint8_t*>(memory);
    for (std::size_t i = 0; i < count; ++i) {
      x[i] = static_cast<std::uint8_t>(i * 7 + (i >> 32) + static_cast<std::size_t>(self.rank));
    }
    EXPECT_HOCKET(hocketAllReduce(x, x, count, hocketUint8, hocketSum, self.comm, nullptr));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      wrong += x[i] != static_cast<std::uint8_t>(2 * (i * 7 + (i >> 32)) + 1);
    }
    EXPECT_EQ(0U, wrong);
    self.meet();
    EXPECT_HOCKET(hocketMemFree(memory));
  });
}

}  // namespace
}  // namespace matrix
