// Which samples each rank trains on.
#include <gtest/gtest.h>

#include <algorithm>
#include <hocket/training/sampler.hpp>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "seed.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;
using Samples = std::vector<std::uint64_t>;

std::vector<DistributedSampler> samplers(std::uint64_t size, int ranks,
                                         const SamplerOptions& options = {}) {
  std::vector<DistributedSampler> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(size, rank, ranks, options);
  return all;
}

/// What the ranks receive in `batches` batches each, in the order of the epoch.
Samples take(std::vector<DistributedSampler>& ranks, std::size_t per_rank, int batches) {
  Samples all;
  for (int b = 0; b < batches; ++b) {
    std::vector<Samples> of_ranks;
    for (DistributedSampler& each : ranks) of_ranks.push_back(each.next_batch(per_rank));
    for (std::size_t i = 0; i < per_rank; ++i) {
      for (const Samples& batch : of_ranks) {
        if (i < batch.size()) all.push_back(batch[i]);
      }
    }
  }
  return all;
}
constexpr int all_batches = 1000;

/// 0, 1, ..., size - 1.
Samples dataset(std::uint64_t size) {
  Samples all(size);
  std::iota(all.begin(), all.end(), 0);
  return all;
}
Samples sorted(Samples samples) {
  std::ranges::sort(samples);
  return samples;
}

TEST(Sampler, order_is_a_permutation_for_every_size) {
  std::mt19937_64 random(tests::seed());
  std::vector<std::uint64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (int i = 0; i < 10; ++i) sizes.push_back(1 + random() % 100000);
  for (const std::uint64_t size : sizes) {
    const Permutation order(size, random(), random() % 100);
    Samples all;
    for (std::uint64_t i = 0; i < size; ++i) all.push_back(order(i));
    ASSERT_EQ(sorted(all), dataset(size)) << size;
  }
  for (const std::uint64_t size : {std::uint64_t{1} << 62, (std::uint64_t{1} << 32) + 1}) {
    const Permutation order(size, random(), 0);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint64_t sample = order(size - 1 - i);
      EXPECT_LT(sample, size);
      EXPECT_TRUE(seen.insert(sample).second);
    }
  }
}

TEST(Sampler, order_is_the_same_on_every_machine) {
  const Permutation order(1000, 42, 3);
  const Samples first = {order(0), order(1), order(2), order(3), order(999)};
  EXPECT_EQ(first, (Samples{505, 836, 625, 409, 734}));
  EXPECT_EQ(Permutation(1000000007, 7, 0)(123456789), 536118224u);
}

TEST(Sampler, every_order_of_few_samples_is_about_as_likely) {
  for (const std::uint64_t size : {2, 3, 4, 5}) {
    std::map<Samples, int> count;
    int orders = 1;
    for (std::uint64_t i = 2; i <= size; ++i) orders *= static_cast<int>(i);
    const int expected = 400;
    for (int seed = 0; seed < expected * orders; ++seed) {
      const Permutation order(size, static_cast<std::uint64_t>(seed) / 16, seed % 16);
      Samples all;
      for (std::uint64_t i = 0; i < size; ++i) all.push_back(order(i));
      ++count[all];
    }
    ASSERT_EQ(count.size(), static_cast<std::size_t>(orders)) << size;
    double chi_square = 0;
    for (const auto& [order, times] : count) {
      chi_square += (times - expected) * (times - expected) / static_cast<double>(expected);
    }
    // Mean orders - 1, standard deviation sqrt(2 (orders - 1)).
    EXPECT_LT(chi_square, orders - 1 + 5 * std::sqrt(2.0 * (orders - 1))) << size;
  }
}

TEST(Sampler, places_of_an_order_are_independent_of_its_samples) {
  constexpr std::uint64_t size = 4096;
  constexpr int tables = 16;  // a table of 16 x 16 blocks: position, sample
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    const Permutation order(size, 1, epoch);
    std::vector<int> count(tables * tables);
    int neighbours = 0;
    for (std::uint64_t i = 0; i < size; ++i) {
      ++count[i / (size / tables) * tables + order(i) / (size / tables)];
      if (i > 0 && order(i) == order(i - 1) + 1) ++neighbours;
    }
    double chi_square = 0;
    const double expected = static_cast<double>(size) / (tables * tables);
    for (const int times : count) chi_square += (times - expected) * (times - expected) / expected;
    const double freedom = (tables - 1) * (tables - 1);
    EXPECT_NEAR(chi_square, freedom, 5 * std::sqrt(2 * freedom)) << epoch;
    EXPECT_LT(neighbours, 10) << epoch;  // 1 is expected
  }
}

TEST(Sampler, ranks_receive_the_samples_as_pytorch_deals_them) {
  // What torch.utils.data.DistributedSampler gives without shuffle.
  struct Case {
    std::uint64_t size;
    int ranks;
    Tail tail;
    std::vector<Samples> expected;
  };
  const Case cases[] = {
      {10, 3, Tail::pad, {{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}},
      {10, 3, Tail::drop, {{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}},
      {10, 3, Tail::uneven, {{0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8}}},
      {9, 3, Tail::pad, {{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}},
      {2, 5, Tail::pad, {{0}, {1}, {0}, {1}, {0}}},
      {2, 5, Tail::drop, {{}, {}, {}, {}, {}}},
      {2, 5, Tail::uneven, {{0}, {1}, {}, {}, {}}},
  };
  for (const Case& each : cases) {
    auto ranks = samplers(each.size, each.ranks, {.shuffle = false, .tail = each.tail});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank].remaining(), each.expected[rank].size());
      Samples received;
      while (const auto sample = ranks[rank].next()) received.push_back(*sample);
      EXPECT_EQ(received, each.expected[rank]) << each.size << ' ' << each.ranks << ' ' << rank;
      EXPECT_EQ(ranks[rank].remaining(), 0u);
      EXPECT_EQ(ranks[rank].consumed(), each.size);
    }
  }
}

TEST(Sampler, each_epoch_has_another_order_that_repeats_with_its_number) {
  auto ranks = samplers(50, 2, {.seed = 9});
  ranks[0].set_epoch(1);
  const Samples first = ranks[0].next_batch(25);
  ranks[0].set_epoch(2);
  EXPECT_NE(ranks[0].next_batch(25), first);
  ranks[0].set_epoch(1);
  EXPECT_EQ(ranks[0].next_batch(25), first);
  EXPECT_NE(samplers(50, 2, {.seed = 8})[0].next_batch(25),
            samplers(50, 2, {.seed = 9})[0].next_batch(25));
}

TEST(Sampler, a_resume_at_other_numbers_of_ranks_neither_repeats_nor_leaves_out_samples) {
  std::mt19937_64 random(tests::seed());
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t size = 1 + random() % 300;
    const SamplerOptions options{.seed = random(), .tail = Tail::uneven};
    const std::uint64_t epoch = random() % 5;
    Samples all;
    std::map<std::string, std::string> state;
    for (const int world : {3, 2, 5, 1}) {
      auto ranks = samplers(size, world, {.tail = Tail::uneven});  // the seed is in the state
      if (state.empty()) ranks = samplers(size, world, options);
      for (DistributedSampler& each : ranks) {
        if (!state.empty()) each.resume(state);
        each.set_epoch(epoch);
      }
      const int batches = world == 1 ? all_batches : static_cast<int>(random() % 4);
      const Samples more = take(ranks, 1 + random() % 8, batches);
      all.insert(all.end(), more.begin(), more.end());
      state = ranks[0].state();
      for (const DistributedSampler& each : ranks) ASSERT_EQ(each.state(), state);
      ASSERT_EQ(std::to_string(all.size()), state.at("consumed"));
    }
    const Permutation order(size, options.seed, epoch);
    ASSERT_EQ(all.size(), size);
    for (std::uint64_t i = 0; i < size; ++i) ASSERT_EQ(all[i], order(i));
  }
}

TEST(Sampler, padding_after_a_resume_repeats_only_the_begin_of_the_order) {
  const SamplerOptions options{.seed = 4, .tail = Tail::pad};
  auto three = samplers(20, 3, options);
  Samples all = take(three, 2, 2);
  EXPECT_EQ(three[1].consumed(), 12u);
  auto five = samplers(20, 5, options);
  for (DistributedSampler& each : five) each.resume(three[0].state());
  const Samples more = take(five, 3, all_batches);
  all.insert(all.end(), more.begin(), more.end());
  ASSERT_EQ(all.size(), 22u);
  EXPECT_EQ((Samples{all[20], all[21]}), (Samples{all[0], all[1]}));
  all.resize(20);
  EXPECT_EQ(sorted(all), dataset(20));
}

TEST(Sampler, the_epoch_after_a_resume_is_whole) {
  auto before = samplers(12, 2);
  take(before, 2, 2);
  auto ranks = samplers(12, 3);
  for (DistributedSampler& each : ranks) {
    each.resume(before[0].state());
    each.set_epoch(0);  // goes on
  }
  EXPECT_EQ(take(ranks, 1, all_batches).size(), 6u);  // 4, and 2 that pad
  for (DistributedSampler& each : ranks) each.set_epoch(1);
  EXPECT_EQ(sorted(take(ranks, 1, all_batches)), dataset(12));
  for (DistributedSampler& each : ranks) each.set_epoch(1);  // begins the epoch again
  EXPECT_EQ(sorted(take(ranks, 1, all_batches)), dataset(12));
}

TEST(Sampler, a_state_that_does_not_fit_is_refused_and_changes_nothing) {
  DistributedSampler sampler(30, 0, 2, {.seed = 3});
  const Samples some = sampler.next_batch(3);
  const auto state = sampler.state();
  const auto changed = [&](const std::string& name, const std::string& value) {
    auto other = state;
    other[name] = value;
    return message_of<InvalidArgument>([&] { sampler.resume(other); });
  };
  EXPECT_NE(changed("size", "31").find("6 of 31 samples, but the dataset has 30"),
            std::string::npos);
  EXPECT_NE(changed("consumed", "31").find("31 of 30"), std::string::npos);
  EXPECT_NE(changed("epoch", "two").find("'epoch' = 'two'"), std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] { sampler.resume({}); }).find("no 'size'"),
            std::string::npos);
  EXPECT_EQ(sampler.state(), state);
  EXPECT_NE(message_of<InvalidArgument>([] { DistributedSampler(0, 0, 1); }), "");
  EXPECT_NE(message_of<InvalidArgument>([] { DistributedSampler(5, 2, 2); }).find("rank 2 of 2"),
            std::string::npos);
}

TEST(Sampler, different_options_are_a_mismatch_on_all_ranks) {
  run_ranks(3, [](Communicator& comm) {
    DistributedSampler equal(100, comm, {.seed = 5});
    EXPECT_EQ(equal.remaining(), 34u);
    const std::uint64_t seed = comm.rank() == 2 ? 6 : 5;
    try {
      DistributedSampler sampler(100, comm, {.seed = seed});
      ADD_FAILURE() << "no error";
    } catch (const Mismatch& error) {
      EXPECT_EQ(error.culprit(), 2);
      EXPECT_NE(std::string(error.what()).find("rank 0 has seed = 5, rank 2 has 6"),
                std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace hocket::training
