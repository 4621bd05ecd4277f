// The factor of the loss, gradients that are not finite, and the mean over the tokens of all ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <hocket/training/loss_scaler.hpp>
#include <hocket/training/non_finite.hpp>
#include <hocket/training/token_normalisation.hpp>
#include <limits>
#include <random>

#include "seed.h"
#include "training/range_math.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr hocketDataType_t scaled_types[] = {hocketFloat64, hocketFloat32, hocketFloat16,
                                             hocketBfloat16};

/// A gradient of one of the types, read and written as numbers.
class Gradient {
 public:
  Gradient(const std::string& name, hocketDataType_t dtype, std::size_t elements)
      : parameter_{name, dtype, {static_cast<std::int64_t>(elements)}, {}},
        bytes_(elements * element_bytes(dtype) + 1) {}
  double get(std::size_t i) const {
    if (parameter_.dtype == hocketFloat64) return at<double>(i);
    if (parameter_.dtype == hocketFloat32) return at<float>(i);
    float wide = 0;
    widen(data() + 2 * i, &wide, 1, parameter_.dtype);
    return wide;
  }
  void set(std::size_t i, double value) {
    const auto single = static_cast<float>(value);
    if (parameter_.dtype == hocketFloat64) {
      std::memcpy(data() + 8 * i, &value, 8);
    } else if (parameter_.dtype == hocketFloat32) {
      std::memcpy(data() + 4 * i, &single, 4);
    } else {
      narrow(&single, data() + 2 * i, 1, parameter_.dtype);
    }
  }
  void fill(double value) {
    for (std::size_t i = 0; i < parameter_.elements(); ++i) set(i, value);
  }
  TensorRange range() { return {parameter_, 0, parameter_.elements(), data()}; }
  std::byte* data() const { return const_cast<std::byte*>(bytes_.data()); }
  const Parameter& parameter() const { return parameter_; }

 private:
  template <typename T>
  T at(std::size_t i) const {
    T value;
    std::memcpy(&value, data() + i * sizeof(T), sizeof(T));
    return value;
  }
  Parameter parameter_;
  std::vector<std::byte> bytes_;
};

TEST(LossScaler, divides_gradients_of_every_type_and_finds_each_number_that_is_not_finite) {
  std::mt19937_64 random(tests::seed());
  std::vector<Communicator> alone = Communicator::join_all(1);
  for (const hocketDataType_t dtype : scaled_types) {
    for (const std::size_t elements : {0, 1, 2, 3, 7, 8, 15, 16, 17, 33, 100, 2048, 2049, 5000}) {
      Gradient gradient("g", dtype, elements);
      for (std::size_t i = 0; i < elements; ++i) gradient.set(i, static_cast<double>(i % 97));
      const TensorRange ranges[] = {gradient.range()};
      LossScaler scaler({.initial_scale = 8});
      ASSERT_TRUE(scaler.unscale(alone[0], ranges, 2)) << elements;
      for (std::size_t i = 0; i < elements; ++i) {
        ASSERT_EQ(gradient.get(i), static_cast<double>(i % 97) / 4) << dtype << ' ' << i;
      }
      if (elements == 0) continue;
      const std::size_t at[] = {0, elements - 1, random() % elements};
      for (const std::size_t bad : at) {
        for (const float value : {nan, infinity, -infinity}) {
          const double before = gradient.get(bad);
          gradient.set(bad, value);
          EXPECT_FALSE(all_finite(ranges[0])) << elements << ' ' << bad;
          EXPECT_FALSE(scaler.unscale(alone[0], ranges)) << elements << ' ' << bad;
          gradient.set(bad, before);
        }
      }
      EXPECT_TRUE(all_finite(ranges[0]));
    }
  }
}

TEST(LossScaler, the_largest_finite_numbers_are_finite) {
  const double largest[] = {std::numeric_limits<double>::max(), std::numeric_limits<float>::max(),
                            65504, 3.3895313892515355e38};
  for (std::size_t i = 0; i < std::size(scaled_types); ++i) {
    Gradient gradient("g", scaled_types[i], 40);
    gradient.fill(largest[i]);
    EXPECT_TRUE(all_finite(gradient.range())) << i;
    EXPECT_TRUE(scale(gradient.range(), 0.5));
    EXPECT_EQ(gradient.get(39), largest[i] / 2);
  }
}

TEST(LossScaler, all_ranks_leave_out_a_step_if_one_rank_has_a_gradient_that_is_not_finite) {
  run_ranks(3, [](Communicator& comm) {
    LossScaler scaler({.initial_scale = 1024, .growth_interval = 2});
    const double scales[] = {1024, 1024, 2048, 1024, 1024, 2048};
    for (int step = 0; step < 6; ++step) {
      EXPECT_EQ(scaler.scale(), scales[step]) << step;
      Gradient gradient("g", hocketFloat16, 50);
      gradient.fill(step == 2 && comm.rank() == 1 ? infinity : 256);
      const TensorRange ranges[] = {gradient.range()};
      EXPECT_EQ(scaler.unscale(comm, ranges), step != 2) << step;
      scaler.update();
      EXPECT_EQ(scaler.skipped(), step == 2 ? 1u : 0u);
    }
  });
}

TEST(LossScaler, scale_grows_and_shrinks_as_pytorchs_does) {
  std::vector<Communicator> alone = Communicator::join_all(1);
  const auto step = [&](LossScaler& scaler, bool finite) {
    Gradient gradient("g", hocketFloat32, 3);
    gradient.fill(finite ? 1 : nan);
    const TensorRange ranges[] = {gradient.range()};
    EXPECT_EQ(scaler.unscale(alone[0], ranges), finite);
    scaler.update();
  };
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1999; ++i) step(scaler, true);
  EXPECT_EQ(scaler.scale(), 65536);
  step(scaler, false);  // begins the count again
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) step(scaler, true);
  EXPECT_EQ(scaler.scale(), 32768);
  step(scaler, true);
  EXPECT_EQ(scaler.scale(), 65536);
  LossScaler largest({.initial_scale = 0x1p127, .growth_interval = 1});
  step(largest, true);
  EXPECT_EQ(largest.scale(), 0x1p127);  // twice as much is no float
}

TEST(LossScaler, one_bad_optimizer_of_several_is_enough_to_shrink_the_scale) {
  std::vector<Communicator> alone = Communicator::join_all(1);
  Gradient good("g", hocketFloat32, 3), bad("b", hocketFloat32, 3);
  bad.fill(nan);
  const TensorRange first[] = {bad.range()}, second[] = {good.range()};
  LossScaler scaler({.initial_scale = 4});
  EXPECT_FALSE(scaler.unscale(alone[0], first));
  EXPECT_TRUE(scaler.unscale(alone[0], second));
  scaler.update();
  EXPECT_EQ(scaler.scale(), 2);
}

TEST(LossScaler, goes_on_from_a_state) {
  std::vector<Communicator> alone = Communicator::join_all(1);
  Gradient gradient("g", hocketFloat32, 3);
  const TensorRange ranges[] = {gradient.range()};
  LossScaler scaler({.initial_scale = 0.1, .growth_interval = 3});
  for (int i = 0; i < 2; ++i) {
    scaler.unscale(alone[0], ranges);
    scaler.update();
  }
  LossScaler other({.growth_interval = 3});
  other.resume(scaler.state());
  EXPECT_EQ(other.scale(), 0.1);
  EXPECT_EQ(other.state(), scaler.state());
  other.unscale(alone[0], ranges);
  other.update();
  EXPECT_EQ(other.scale(), 0.2);
  auto state = scaler.state();
  state["scale"] = "nan";
  EXPECT_NE(message_of<InvalidArgument>([&] { other.resume(state); }).find("scale is nan"),
            std::string::npos);
  state["scale"] = "12x";
  EXPECT_NE(message_of<InvalidArgument>([&] { other.resume(state); }).find("'scale' = '12x'"),
            std::string::npos);
  EXPECT_EQ(other.scale(), 0.2);
}

TEST(LossScaler, wrong_options_calls_and_types_are_refused_on_all_ranks) {
  const auto refused = [](const LossScalerOptions& options) {
    return message_of<InvalidArgument>([&] { LossScaler scaler(options); });
  };
  EXPECT_NE(refused({.initial_scale = 0}).find("initial_scale is 0"), std::string::npos);
  EXPECT_NE(refused({.growth_factor = 1}).find("growth_factor is 1"), std::string::npos);
  EXPECT_NE(refused({.backoff_factor = 1}).find("backoff_factor is 1"), std::string::npos);
  EXPECT_NE(refused({.growth_interval = 0}), "");
  run_ranks(2, [](Communicator& comm) {
    LossScaler scaler;
    EXPECT_NE(message_of<InvalidUsage>([&] { scaler.update(); }).find("without unscale()"),
              std::string::npos);
    TensorRange range = Gradient("g", hocketFloat32, 0).range();
    if (comm.rank() == 1) range.tensor.dtype = hocketInt32;
    const TensorRange ranges[] = {range};
    EXPECT_NE(message_of<InvalidArgument>([&] {
                scaler.unscale(comm, ranges);
              }).find(comm.rank() == 1 ? "'g'" : "another rank"),
              std::string::npos);
    GradientReducer reducer(comm, {{"w", hocketFloat32, {4}, {}}});
    EXPECT_TRUE(scaler.unscale(reducer));
    EXPECT_NE(message_of<InvalidUsage>([&] { scaler.unscale(reducer); }).find("a second time"),
              std::string::npos);
    scaler.update();
    EXPECT_TRUE(scaler.unscale(reducer));
  });
}

std::vector<Parameter> scaled_model() {
  return {{"first", hocketFloat32, {3}, {}},
          {"second", hocketFloat32, {5}, {}},
          {"third", hocketBfloat16, {2, 2}, {}}};
}

TEST(NonFinite, the_first_parameter_and_the_ranks_are_named) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(comm, scaled_model());
    EXPECT_FALSE(find_non_finite(reducer).has_value());
    require_finite(reducer);
    reducer.begin(false);  // not averaged: the NaNs stay on their ranks
    for (const int p : {2, 1, 0}) reducer.ready(p);
    reducer.end();
    if (comm.rank() == 2) static_cast<float*>(reducer.gradient(1))[4] = nan;
    if (comm.rank() == 0) static_cast<std::uint16_t*>(reducer.gradient(2))[3] = 0x7f80;
    const auto found = find_non_finite(reducer);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->parameter.name, "second");
    EXPECT_EQ(found->ranks, std::vector<int>{2});
    EXPECT_EQ(found->parameters, 2u);
    try {
      require_finite(reducer);
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.culprit(), 2);
      EXPECT_NE(std::string(error.what())
                    .find("the gradient of parameter 'second' (float32, 5) is NaN or infinite on "
                          "rank 2 (and those of 1 more parameters)"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(NonFinite, ranges_of_other_ranks_may_differ_and_unknown_ones_are_an_error_on_all) {
  run_ranks(3, [](Communicator& comm) {
    Gradient mine(comm.rank() == 0 ? "first" : "second", hocketFloat32, 3);
    if (comm.rank() == 2) mine.set(2, nan);
    std::vector<TensorRange> ranges;  // rank 1 holds nothing
    if (comm.rank() != 1) ranges.push_back(mine.range());
    const auto parameters = scaled_model();
    const auto found = find_non_finite(comm, parameters, ranges);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->parameter.name, "second");
    EXPECT_EQ(found->ranks, std::vector<int>{2});
    if (comm.rank() == 0) ranges[0].tensor.name = "other";
    EXPECT_NE(message_of<InvalidArgument>([&] {
                (void)find_non_finite(comm, parameters, ranges);
              }).find("'other' (float32, 3) is no parameter of the model"),
              std::string::npos);
  });
}

/// A model of one weight: the loss of a token x is (w x)^2 / 2, its gradient w x^2.
TEST(Tokens, gradients_are_those_of_the_mean_over_the_tokens_of_all_ranks) {
  std::mt19937_64 random(tests::seed());
  const std::uint64_t seed = random();
  for (const hocketRedOp_t op : {hocketAvg, hocketSum}) {
    run_ranks(3, [&](Communicator& comm) {
      std::mt19937_64 texts(seed);  // the same texts on all ranks
      constexpr int micro_steps = 3;
      constexpr double weight = 0.75;
      double all_gradients = 0;
      std::uint64_t all_tokens = 0, mine = 0;
      std::vector<std::vector<double>> micro(micro_steps);
      for (int rank = 0; rank < 3; ++rank) {
        for (auto& each : micro) {
          const std::size_t tokens = rank == 1 ? 0 : texts() % 40;
          if (rank == comm.rank()) mine += tokens;
          all_tokens += tokens;
          for (std::size_t i = 0; i < tokens; ++i) {
            const double x = static_cast<double>(texts() % 100) / 10;
            all_gradients += weight * x * x;
            if (rank == comm.rank()) each.push_back(x);
          }
        }
      }
      const TokenNormalisation mean = normalise_tokens(comm, mine, op);
      EXPECT_EQ(mean.tokens, all_tokens);
      for (const bool afterwards : {false, true}) {
        GradientReducer reducer(comm, {{"w", hocketFloat64, {}, {}}},
                                {.reduction = std::make_shared<AllReduce>(op)});
        for (int m = 0; m < micro_steps; ++m) {
          reducer.begin(m + 1 == micro_steps);
          for (const double x : micro[static_cast<std::size_t>(m)]) {
            *static_cast<double*>(reducer.gradient(0)) +=
                weight * x * x * (afterwards ? 1.0 : mean.factor);
          }
          reducer.ready(0);
          reducer.end();
        }
        if (afterwards) scale_gradients(reducer, mean.factor);
        const double expected =
            all_tokens == 0 ? 0 : all_gradients / static_cast<double>(all_tokens);
        EXPECT_NEAR(*static_cast<double*>(reducer.gradient(0)), expected, 1e-12 * expected);
      }
    });
  }
}

TEST(Tokens, none_at_all_give_no_gradient_and_wrong_arguments_are_refused) {
  run_ranks(2, [](Communicator& comm) {
    EXPECT_EQ(normalise_tokens(comm, 0).factor, 0);
    EXPECT_THROW((void)normalise_tokens(comm, 1, hocketMax), InvalidArgument);
    Gradient good("a", hocketFloat32, 1);
    good.fill(1);
    TensorRange ranges[] = {good.range(), good.range()};
    ranges[1].tensor.dtype = hocketInt8;
    EXPECT_THROW(scale_gradients(ranges, 2), InvalidArgument);
    EXPECT_EQ(good.get(0), 1);
  });
}

}  // namespace
}  // namespace hocket::training
