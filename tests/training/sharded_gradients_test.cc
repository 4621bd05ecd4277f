// Gradients that are reduced into shards, driven as a hand-written training loop drives them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <hocket/training/gradients.hpp>
#include <map>
#include <random>

#include "seed.h"
#include "training/put.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::put;
using tests::run_ranks;

std::vector<Parameter> uneven_model() {
  return {{"a", hocketFloat32, {37, 5}, {}}, {"b", hocketFloat32, {3}, {}},
          {"c", hocketFloat64, {50}, {}},    {"d", hocketFloat32, {301}, {}},
          {"e", hocketFloat64, {7, 9}, {}},  {"f", hocketFloat32, {18}, {}}};
}

constexpr BucketLimits small_buckets{.first_bytes = 100, .bytes = 700};

/// Small whole numbers: sums and means over 1, 2 or 4 ranks are exact in any order.
double sharded_value(int rank, int step, int parameter, std::size_t element) {
  return 60.0 * (rank + 1) * (step + 1) + 120.0 * parameter + 60.0 * static_cast<int>(element % 7);
}
double sharded_mean(int ranks, int step, int parameter, std::size_t element) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += sharded_value(rank, step, parameter, element);
  return sum / ranks;
}

double get(hocketDataType_t dtype, const void* data, std::size_t i) {
  return dtype == hocketFloat64 ? static_cast<const double*>(data)[i]
                                : static_cast<const float*>(data)[i];
}
/// A hand-written backward: computes each gradient into memory of its own, as a framework does, and
/// gives it to the reducer; or keeps it until the reducer asks for it.
class Backward final : public GradientOwner {
 public:
  /// reducer is null until it is made with this as its owner.
  GradientReducer* reducer = nullptr;
  std::map<int, std::vector<double>> kept;
  std::size_t most_kept = 0;

  void compute(int rank, int step, int parameter) {
    const Parameter& p = reducer->parameters()[static_cast<std::size_t>(parameter)];
    std::vector<double> gradient(p.elements());
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = sharded_value(rank, step, parameter, i);
    give(parameter, gradient);
  }
  void give(int parameter, const std::vector<double>& gradient) {
    const Parameter& p = reducer->parameters()[static_cast<std::size_t>(parameter)];
    void* const place = reducer->gradient(parameter);
    if (place == nullptr) {
      std::vector<double>& sum = kept[parameter];
      sum.resize(gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
      most_kept = std::max(most_kept, kept.size());
    } else {
      for (std::size_t i = 0; i < gradient.size(); ++i) put(p.dtype, place, i, gradient[i]);
    }
    reducer->ready(parameter);
  }

  bool needs_gradient(int parameter) override { return kept.contains(parameter); }
  void moved(int, void*) override {}
  void deliver(int parameter, void* place) override {
    const Parameter& p = reducer->parameters()[static_cast<std::size_t>(parameter)];
    const std::vector<double>& gradient = kept.at(parameter);
    for (std::size_t i = 0; i < gradient.size(); ++i) put(p.dtype, place, i, gradient[i]);
    kept.erase(parameter);
  }
};

struct Case {
  Sharding sharding;
  ShardCut cut;
  int ranks;
};
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    for (const ShardCut cut : {ShardCut::elements, ShardCut::parameters}) {
      for (const int ranks : {1, 2, 3, 5}) cases.push_back({sharding, cut, ranks});
    }
  }
  return cases;
}

/// Whether each held element has the value that it should have; counts the elements of every rank.
template <typename Expected>
void expect_held(GradientReducer& reducer, Communicator& comm, Expected expected) {
  std::vector<int> counts;
  for (const Parameter& p : reducer.parameters()) {
    counts.resize(counts.size() + p.elements());
  }
  for (const TensorRange& range : reducer.held()) {
    std::size_t first = 0;
    int index = 0;
    while (reducer.parameters()[static_cast<std::size_t>(index)].name != range.tensor.name) {
      first += reducer.parameters()[static_cast<std::size_t>(index++)].elements();
    }
    for (std::size_t i = 0; i < range.elements; ++i) {
      const std::size_t element = range.begin + i;
      ++counts[first + element];
      const double wanted = expected(index, element);
      ASSERT_NEAR(get(range.tensor.dtype, range.data, i), wanted, 1e-6 * std::abs(wanted))
          << range.tensor.name << ' ' << element;
    }
  }
  comm.all_reduce(counts, hocketSum);
  const int holders = reducer.sharded() ? 1 : comm.ranks();
  ASSERT_TRUE(std::all_of(counts.begin(), counts.end(), [&](int n) { return n == holders; }));
}

TEST(ShardedGradients, held_ranges_have_the_mean_and_every_element_is_held_by_one_rank) {
  const std::uint64_t seed = tests::seed();
  for (const Case& each : all_cases()) {
    run_ranks(each.ranks, [&](Communicator& comm) {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
      Backward backward;
      GradientReducer reducer(comm, uneven_model(),
                              {.limits = small_buckets,
                               .sharding = each.sharding,
                               .cut = each.cut,
                               .owner = &backward});
      backward.reducer = &reducer;
      std::vector<int> order = reverse_order(6);
      for (int step = 0; step < 5; ++step) {
        reducer.begin();
        for (const int p : order) backward.compute(comm.rank(), step, p);
        reducer.end();
        expect_held(reducer, comm,
                    [&](int p, std::size_t i) { return sharded_mean(each.ranks, step, p, i); });
        reducer.discard();
        std::shuffle(order.begin(), order.end(), random);
      }
      EXPECT_TRUE(backward.kept.empty());
    });
  }
}

TEST(ShardedGradients, keep_only_what_comes_before_its_bucket_has_a_place) {
  run_ranks(2, [](Communicator& comm) {
    Backward backward;
    GradientReducer reducer(comm, uneven_model(),
                            {.limits = {.first_bytes = 1, .bytes = 1},
                             .sharding = Sharding::zero2,
                             .owner = &backward});
    backward.reducer = &reducer;
    for (int step = 0; step < 3; ++step) {
      reducer.begin();
      for (const int p : reverse_order(6)) backward.compute(comm.rank(), step, p);
      reducer.end();
      reducer.discard();
    }
    EXPECT_EQ(backward.most_kept, 0u);  // the order of the buckets: none waits outside
    reducer.begin();
    for (const int p : {5, 0, 1, 2, 3, 4}) backward.compute(comm.rank(), 3, p);
    reducer.end();
    EXPECT_EQ(backward.most_kept, 3u);  // 0, 1 and 2 wait for 4 and 3; 3 has the second place
  });
}

TEST(ShardedGradients, of_further_backwards_are_added_until_they_are_discarded) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    run_ranks(2, [&](Communicator& comm) {
      Backward backward;
      GradientReducer reducer(comm, uneven_model(),
                              {.limits = small_buckets, .sharding = sharding, .owner = &backward});
      backward.reducer = &reducer;
      for (int round = 0; round < 3; ++round) {
        for (int step = 0; step < 3; ++step) {
          reducer.begin();
          reducer.begin();  // a forward without a backward
          for (const int p : reverse_order(6)) backward.compute(comm.rank(), step, p);
          reducer.end();
        }
        expect_held(reducer, comm, [&](int p, std::size_t i) {
          return sharded_mean(2, 0, p, i) + sharded_mean(2, 1, p, i) + sharded_mean(2, 2, p, i);
        });
        reducer.discard();
      }
    });
  }
}

TEST(ShardedGradients, of_backwards_that_do_not_synchronize_stay_with_the_owner_in_zero2) {
  run_ranks(3, [](Communicator& comm) {
    Backward backward;
    GradientReducer reducer(
        comm, uneven_model(),
        {.limits = small_buckets, .sharding = Sharding::zero2, .owner = &backward});
    backward.reducer = &reducer;
    for (int round = 0; round < 3; ++round) {
      reducer.begin(false);
      for (const int p : reverse_order(6)) backward.compute(comm.rank(), 0, p);
      reducer.end();
      EXPECT_EQ(backward.kept.size(), 6u);
      reducer.begin();
      for (const int p : reverse_order(6)) {
        // The program adds up.
        std::vector<double> sum = backward.kept.at(p);
        backward.kept.erase(p);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += sharded_value(comm.rank(), 1, p, i);
        backward.give(p, sum);
      }
      reducer.end();
      expect_held(reducer, comm, [&](int p, std::size_t i) {
        return sharded_mean(3, 0, p, i) + sharded_mean(3, 1, p, i);
      });
      reducer.discard();
    }
  });
}

TEST(ShardedGradients, of_a_parameter_that_is_used_several_times_are_complete_from_the_first_step) {
  run_ranks(2, [](Communicator& comm) {
    Backward backward;
    GradientReducer reducer(comm, uneven_model(),
                            {.limits = {.first_bytes = 1, .bytes = 1},
                             .sharding = Sharding::zero2,
                             .owner = &backward});
    backward.reducer = &reducer;
    for (int step = 0; step < 3; ++step) {
      reducer.begin();
      for (const int p : {5, 4, 3, 2, 1}) backward.compute(comm.rank(), step, p);
      // In the first backward the bucket of parameter 3 was launched already.
      const std::vector<double> more(301, 60.0 * (comm.rank() + 1));
      if (step == 0) {
        backward.give(3, more);
      } else {
        // The places of 3 have the first gradient; the program adds.
        std::vector<double> sum(301);
        const auto* const place = static_cast<const float*>(reducer.gradient(3));
        ASSERT_NE(place, nullptr);
        for (std::size_t i = 0; i < 301; ++i) sum[i] = place[i] + more[i];
        backward.give(3, sum);
      }
      backward.compute(comm.rank(), step, 0);
      reducer.end();
      expect_held(reducer, comm, [&](int p, std::size_t i) {
        return sharded_mean(2, step, p, i) + (p == 3 ? 90 : 0);
      });
      reducer.discard();
    }
  });
}

TEST(ShardedGradients, of_parameters_without_one_are_zero_on_that_rank_or_an_error_on_all) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    for (const bool allowed : {true, false}) {
      run_ranks(2, [&](Communicator& comm) {
        Backward backward;
        GradientReducer reducer(comm, uneven_model(),
                                {.limits = small_buckets,
                                 .sharding = sharding,
                                 .find_unused_parameters = allowed,
                                 .owner = &backward});
        backward.reducer = &reducer;
        for (int step = 0; step < 3; ++step) {
          const auto run = [&] {
            reducer.begin();
            for (const int p : reverse_order(6)) {
              if (p == 2 || (p == 3 && comm.rank() == 1)) continue;
              backward.compute(comm.rank(), step, p);
            }
            reducer.end();
          };
          if (!allowed) {
            EXPECT_NE(message_of<Mismatch>(run).find("'c' (float64, 50)"), std::string::npos);
            continue;
          }
          run();
          EXPECT_FALSE(reducer.was_used(2));
          EXPECT_TRUE(reducer.was_used(3));
          expect_held(reducer, comm, [&](int p, std::size_t i) {
            return p == 2   ? 0
                   : p == 3 ? sharded_value(0, step, p, i) / 2
                            : sharded_mean(2, step, p, i);
          });
          reducer.discard();
        }
      });
    }
  }
}

TEST(ShardedGradients, allocate_what_the_formula_says) {
  for (const Case& each : all_cases()) {
    run_ranks(each.ranks, [&](Communicator& comm) {
      GradientReducer reducer(
          comm, uneven_model(),
          {.limits = small_buckets, .sharding = each.sharding, .cut = each.cut});
      const TrainingMemory expected = memory_of(each.sharding, uneven_model(), each.ranks,
                                                comm.rank(), small_buckets, each.cut);
      EXPECT_EQ(reducer.memory().gradient_arena, expected.gradient_arena);
      EXPECT_EQ(reducer.memory().gradient_pool, expected.gradient_pool);
    });
  }
}

TEST(ShardedGradients, without_an_owner_must_come_in_the_order_of_the_buckets) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(
        comm, uneven_model(),
        {.limits = {.first_bytes = 1, .bytes = 1}, .sharding = Sharding::zero2});
    reducer.begin();
    EXPECT_EQ(reducer.gradient(0), nullptr);  // in the last bucket
    EXPECT_NE(message_of<InvalidUsage>([&] { reducer.ready(0); }).find("'a' (float32, 37 x 5)"),
              std::string::npos);
    for (const int p : reverse_order(6)) {
      ASSERT_NE(reducer.gradient(p), nullptr);
      reducer.ready(p);
    }
    reducer.end();
  });
}

}  // namespace
}  // namespace hocket::training
