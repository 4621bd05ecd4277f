#include <gtest/gtest.h>

#include <random>

#include "collectives/verify/verify_order.h"

namespace hocket::internal::verify_detail {
namespace {

// Threads make steps and synchronize at random; sets of steps give the expected answer.
TEST(Order, clocks_of_a_rank_and_of_all_threads_give_the_plain_answer) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<std::uint32_t>(2 + random() % 3);
    std::vector<std::uint32_t> rank_of;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (std::uint64_t lanes = 1 + random() % 3; lanes > 0; --lanes) rank_of.push_back(r);
    }
    const int threads = static_cast<int>(rank_of.size());
    Order full(rank_of, false), sparse(rank_of, false, 0);
    // known[t][u]: steps of u that t knows to have ended.
    std::vector<std::vector<std::uint32_t>> known(threads, std::vector<std::uint32_t>(threads));
    int ordered = 0, unordered = 0;
    for (int event = 0; event < 120; ++event) {
      const int thread = static_cast<int>(random() % threads);
      const int other = static_cast<int>(random() % threads);
      if (other != thread && random() % 3 == 0) {
        full.hear(thread, full.note(other));
        sparse.hear(thread, sparse.note(other));
        for (int t = 0; t < threads; ++t) {
          known[thread][t] = std::max(known[thread][t], known[other][t]);
        }
      }
      for (int t = 0; t < threads; ++t) {
        if (t == thread || known[t][t] == 0) continue;
        const Epoch epoch{t, 1 + static_cast<std::uint32_t>(random() % known[t][t])};
        const bool expected = known[thread][t] >= epoch.tick;
        (expected ? ordered : unordered) += 1;
        ASSERT_EQ(full.before(epoch, thread), expected);
        ASSERT_EQ(sparse.before(epoch, thread), expected);
      }
      full.tick(thread);
      sparse.tick(thread);
      ++known[thread][thread];
    }
    EXPECT_GT(ordered, 0);
    EXPECT_GT(unordered, 0);
  }
}

}  // namespace
}  // namespace hocket::internal::verify_detail
