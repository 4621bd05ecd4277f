// How parameters are put into buckets.
#include <gtest/gtest.h>

#include <algorithm>
#include <hocket/training/buckets.hpp>
#include <hocket/training/reduction.hpp>
#include <map>
#include <random>

#include "seed.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

Parameter bucket_parameter(const std::string& name, std::int64_t elements,
                           hocketDataType_t dtype = hocketFloat32) {
  return {name, dtype, {elements}, {}};
}

std::vector<int> parameters_of(const Bucket& bucket) {
  std::vector<int> all;
  for (const Slot& slot : bucket.slots) all.push_back(slot.parameter);
  return all;
}

TEST(Buckets, are_filled_in_reverse_order_and_the_first_is_small) {
  const std::vector<Parameter> model = {bucket_parameter("a", 100), bucket_parameter("b", 300),
                                        bucket_parameter("c", 200), bucket_parameter("d", 10)};
  const BucketLayout layout(model, reverse_order(4), {.first_bytes = 40, .bytes = 2400});
  ASSERT_EQ(layout.buckets().size(), 2u);
  EXPECT_EQ(parameters_of(layout.buckets()[0]), (std::vector<int>{3}));
  EXPECT_EQ(parameters_of(layout.buckets()[1]), (std::vector<int>{2, 1, 0}));
}

TEST(Buckets, a_bucket_ends_when_it_has_reached_its_limit) {
  const std::vector<Parameter> model(10, bucket_parameter("", 16));
  const BucketLayout layout(model, reverse_order(10), {.first_bytes = 64, .bytes = 192});
  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : layout.buckets()) sizes.push_back(bucket.slots.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 3, 3, 3}));
}

TEST(Buckets, each_type_has_its_own_and_they_are_in_the_order_of_their_last_parameters) {
  const std::vector<Parameter> model = {
      bucket_parameter("f0", 16), bucket_parameter("h1", 16, hocketBfloat16),
      bucket_parameter("f2", 16), bucket_parameter("h3", 16, hocketBfloat16),
      bucket_parameter("h4", 16, hocketBfloat16)};
  const BucketLayout layout(model, reverse_order(5), {.first_bytes = 1 << 20, .bytes = 1 << 20});
  ASSERT_EQ(layout.buckets().size(), 2u);
  EXPECT_EQ(layout.buckets()[0].dtype, hocketBfloat16);
  EXPECT_EQ(parameters_of(layout.buckets()[0]), (std::vector<int>{4, 3, 1}));
  EXPECT_EQ(parameters_of(layout.buckets()[1]), (std::vector<int>{2, 0}));
}

TEST(Buckets, a_model_without_parameters_has_none) {
  const BucketLayout layout({}, {}, {});
  EXPECT_TRUE(layout.buckets().empty());
  EXPECT_TRUE(layout.arenas().empty());
}

/// What must hold of every layout.
void expect_right(const std::vector<Parameter>& model, const BucketLayout& layout) {
  std::vector<int> seen(model.size());
  std::map<hocketDataType_t, std::size_t> end;
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const Bucket& bucket = layout.buckets()[b];
    EXPECT_EQ(bucket.offset, end[bucket.dtype]);
    EXPECT_EQ(bucket.bytes() % bucket_alignment, 0u);
    end[bucket.dtype] += bucket.bytes();
    std::size_t filled = 0;
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      const Slot& slot = bucket.slots[s];
      const Parameter& of = model[static_cast<std::size_t>(slot.parameter)];
      ++seen[static_cast<std::size_t>(slot.parameter)];
      EXPECT_EQ(of.dtype, bucket.dtype);
      EXPECT_EQ(slot.elements, of.elements());
      EXPECT_EQ(slot.begin * element_bytes(bucket.dtype) % bucket_alignment, 0u);
      EXPECT_GE(slot.begin, filled);
      filled = slot.begin + slot.elements;
      EXPECT_EQ(layout.place(slot.parameter).bucket, static_cast<int>(b));
      EXPECT_EQ(layout.place(slot.parameter).slot, static_cast<int>(s));
    }
    EXPECT_LE(filled, bucket.elements);
  }
  EXPECT_EQ(seen, std::vector<int>(model.size(), 1));
  ASSERT_EQ(layout.arenas().size(), end.size());
  for (const auto& arena : layout.arenas()) EXPECT_EQ(arena.bytes, end[arena.dtype]);
}

TEST(Buckets, of_random_models_hold_every_parameter_once_without_overlap) {
  std::mt19937_64 random(tests::seed());
  const hocketDataType_t types[] = {hocketFloat32, hocketFloat64, hocketFloat16, hocketBfloat16};
  for (int model_number = 0; model_number < 200; ++model_number) {
    std::vector<Parameter> model;
    const std::size_t kinds = 1 + random() % 4, count = random() % 40;
    for (std::size_t i = 0; i < count; ++i) {
      model.push_back(bucket_parameter("p", static_cast<std::int64_t>(random() % 300),
                                       types[random() % kinds]));
    }
    std::vector<int> order = reverse_order(count);
    const BucketLimits limits{.first_bytes = 1 + random() % 1000, .bytes = 1 + random() % 5000};
    const BucketLayout first(model, order, limits);
    expect_right(model, first);
    std::shuffle(order.begin(), order.end(), random);
    const BucketLayout second(model, order, limits);
    expect_right(model, second);
    for (const auto& arena : first.arenas()) {  // their size does not depend on the order
      EXPECT_TRUE(
          std::any_of(second.arenas().begin(), second.arenas().end(), [&](const auto& other) {
            return other.dtype == arena.dtype && other.bytes == arena.bytes;
          }));
    }
  }
}

float expected_us(Communicator& comm, std::size_t bytes) {
  Memory<float> gradients(bytes / sizeof(float));
  Group group;
  comm.all_reduce(gradients, hocketAvg);
  return group.simulate_end().value_or(0);
}

TEST(Buckets, limits_by_cost_are_the_smallest_buckets_that_are_almost_as_fast_as_the_best) {
  constexpr std::size_t total = std::size_t{40} << 20, most = BucketLimits{}.bytes;
  std::vector<std::size_t> chosen(2);
  tests::run_ranks(2, [&](Communicator& comm) {
    const BucketLimits limits = limits_by_cost(comm, total);
    chosen[static_cast<std::size_t>(comm.rank())] = limits.bytes;
    EXPECT_EQ(limits.first_bytes, std::min(limits.bytes, BucketLimits{}.first_bytes));
    std::map<std::size_t, float> all_us;  // of all buckets, by the size of a bucket
    for (std::size_t bytes = std::size_t{64} << 10; bytes < most; bytes *= 2) {
      all_us[bytes] = expected_us(comm, bytes) * static_cast<float>((total + bytes - 1) / bytes);
    }
    all_us[most] = expected_us(comm, most) * 2;
    ASSERT_TRUE(all_us.contains(limits.bytes)) << limits.bytes;
    for (const auto& [bytes, us] : all_us) {
      EXPECT_LE(all_us[limits.bytes], 1.051 * us) << limits.bytes << " beside " << bytes;
      if (bytes >= limits.bytes) continue;
      const auto faster = std::find_if(all_us.begin(), all_us.end(), [&, us = us](const auto& e) {
        return us > 1.049 * e.second;
      });
      EXPECT_NE(faster, all_us.end()) << bytes << " would do instead of " << limits.bytes;
    }
  });
  EXPECT_EQ(chosen[0], chosen[1]);
}

TEST(Buckets, limits_by_cost_of_a_single_rank_are_the_default) {
  tests::run_ranks(1, [](Communicator& comm) {
    EXPECT_EQ(limits_by_cost(comm, 1 << 20).bytes, BucketLimits{}.bytes);
    EXPECT_EQ(limits_by_cost(comm, 1 << 20).first_bytes, BucketLimits{}.first_bytes);
  });
}

}  // namespace
}  // namespace hocket::training
