// The cut of buckets into a range for each rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <hocket/training/shards.hpp>
#include <random>

#include "seed.h"

namespace hocket::training {
namespace {

std::vector<Parameter> random_model(std::mt19937_64& random) {
  constexpr hocketDataType_t dtypes[] = {hocketFloat32, hocketBfloat16, hocketFloat64};
  std::vector<Parameter> model;
  const std::size_t count = 1 + random() % 12;
  for (std::size_t p = 0; p < count; ++p) {
    model.push_back({"p" + std::to_string(p),
                     dtypes[random() % 3],
                     {static_cast<std::int64_t>(1 + random() % 200)},
                     {}});
  }
  return model;
}

constexpr BucketLimits shard_buckets{.first_bytes = 300, .bytes = 1000};

TEST(Shards, of_all_ranks_hold_every_element_of_every_parameter_once) {
  std::mt19937_64 random(tests::seed());
  for (int round = 0; round < 200; ++round) {
    const std::vector<Parameter> model = random_model(random);
    const BucketLayout layout(model, reverse_order(model.size()), shard_buckets);
    const int ranks = 1 + static_cast<int>(random() % 7);
    const ShardCut cut = round % 2 == 0 ? ShardCut::elements : ShardCut::parameters;
    const ShardLayout shards(layout.buckets(), ranks, cut);
    std::vector<std::vector<int>> held;
    for (const Parameter& parameter : model) held.emplace_back(parameter.elements());
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      std::size_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        ASSERT_EQ(shards.begins(b)[r], next);
        next += shards.counts(b)[r];
        for (const ShardLayout::Piece& piece : shards.pieces(b, rank)) {
          ASSERT_LE(piece.at + piece.elements, shards.counts(b)[r]);
          auto& elements = held[static_cast<std::size_t>(piece.parameter)];
          for (std::size_t i = 0; i < piece.elements; ++i) ++elements[piece.begin + i];
          if (cut == ShardCut::parameters) {
            ASSERT_EQ(piece.elements, elements.size());
          }
        }
      }
      ASSERT_EQ(next, layout.buckets()[b].elements);
    }
    for (const auto& elements : held) {
      ASSERT_TRUE(std::all_of(elements.begin(), elements.end(), [](int n) { return n == 1; }));
    }
  }
}

TEST(Shards, of_equal_size_begin_at_multiples_of_64_bytes_and_differ_by_the_last_ones_only) {
  const std::vector<Parameter> model = {{"w", hocketFloat32, {1000}, {}}};
  const BucketLayout layout(model, reverse_order(1), {});
  const ShardLayout shards(layout.buckets(), 3, ShardCut::elements);
  const std::vector<std::size_t> counts(shards.counts(0).begin(), shards.counts(0).end());
  EXPECT_EQ(counts, (std::vector<std::size_t>{336, 336, 336}));  // 1008: the bucket with its gap
  EXPECT_EQ(shards.pieces(0, 2)[0].elements, 1000u - 672u);      // without the gap
}

TEST(Shards, of_a_bucket_that_is_smaller_than_a_unit_for_each_rank_may_be_empty) {
  const std::vector<Parameter> model = {{"w", hocketFloat32, {20}, {}}};
  const BucketLayout layout(model, reverse_order(1), {});
  const ShardLayout shards(layout.buckets(), 5, ShardCut::elements);
  const std::vector<std::size_t> counts(shards.counts(0).begin(), shards.counts(0).end());
  EXPECT_EQ(counts, (std::vector<std::size_t>{16, 16, 0, 0, 0}));
  EXPECT_TRUE(shards.pieces(0, 4).empty());
}

/// The largest shard of the best cut between parameters, by trying all cuts.
std::size_t best_largest(const std::vector<std::size_t>& sizes, std::size_t from, int ranks) {
  std::size_t rest = 0;
  for (std::size_t i = from; i < sizes.size(); ++i) rest += sizes[i];
  if (ranks == 1) return rest;
  std::size_t best = rest, first = 0;
  for (std::size_t end = from; end < sizes.size(); ++end) {
    first += sizes[end];
    best = std::min(best, std::max(first, best_largest(sizes, end + 1, ranks - 1)));
  }
  return best;
}

TEST(Shards, of_whole_parameters_make_the_largest_shard_as_small_as_possible) {
  std::mt19937_64 random(tests::seed());
  for (int round = 0; round < 100; ++round) {
    std::vector<Parameter> model;
    const std::size_t count = 1 + random() % 8;
    for (std::size_t p = 0; p < count; ++p) {
      model.push_back({"p" + std::to_string(p),
                       hocketFloat32,
                       {static_cast<std::int64_t>(1 + random() % 300)},
                       {}});
    }
    const BucketLayout layout(model, reverse_order(model.size()), {});
    const int ranks = 1 + static_cast<int>(random() % 4);
    const ShardLayout shards(layout.buckets(), ranks, ShardCut::parameters);
    std::vector<std::size_t> sizes;
    for (const Slot& slot : layout.buckets()[0].slots)
      sizes.push_back((slot.elements + 15) / 16 * 16);
    const auto counts = shards.counts(0);
    EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), best_largest(sizes, 0, ranks));
  }
}

TEST(Shards, lie_one_after_another_in_an_arena_of_their_type) {
  const std::vector<Parameter> model = {{"a", hocketFloat32, {100}, {}},
                                        {"b", hocketBfloat16, {100}, {}},
                                        {"c", hocketFloat32, {300}, {}}};
  const BucketLayout layout(model, reverse_order(3), {.first_bytes = 1, .bytes = 1});
  const ShardLayout shards(layout.buckets(), 2, ShardCut::elements);
  for (int rank = 0; rank < 2; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    EXPECT_EQ(shards.offset(0, rank), 0u);
    EXPECT_EQ(shards.offset(1, rank), 0u);  // of another type
    EXPECT_EQ(shards.offset(2, rank), shards.counts(0)[r] * 4);
    EXPECT_EQ(shards.arenas(rank).at(0).bytes, (shards.counts(0)[r] + shards.counts(2)[r]) * 4);
    EXPECT_EQ(shards.arenas(rank).at(1).bytes, shards.counts(1)[r] * 2);
  }
}

TEST(MemoryOf, has_the_formula_of_each_strategy) {
  // 64 Ki elements in each of four buckets: no gaps, and all cuts are equal.
  std::vector<Parameter> model;
  for (int p = 0; p < 4; ++p) {
    model.push_back({"p" + std::to_string(p), hocketFloat32, {65536}, {}});
  }
  const BucketLimits one_each{.first_bytes = 1, .bytes = 1};
  constexpr std::size_t all = 4 * 65536 * 4, bucket = 65536 * 4;
  const auto total = [&](Sharding sharding) {
    const TrainingMemory memory = memory_of(sharding, model, 4, 1, one_each);
    return std::vector<std::size_t>{memory.parameter_arena, memory.gradient_arena,
                                    memory.gradient_pool, memory.optimizer_state};
  };
  EXPECT_EQ(total(Sharding::none), (std::vector<std::size_t>{0, all, 0, 2 * all}));
  EXPECT_EQ(total(Sharding::zero1), (std::vector<std::size_t>{all, all, 0, all / 2}));
  EXPECT_EQ(total(Sharding::zero2), (std::vector<std::size_t>{all, all / 4, 2 * bucket, all / 2}));
}

}  // namespace
}  // namespace hocket::training
