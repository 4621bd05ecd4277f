// Reductions that send fewer bytes.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <hocket/training/compression.hpp>
#include <hocket/training/gradients.hpp>
#include <random>

#include "seed.h"
#include "training/range_math.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::run_ranks;

/// The exact value of a 16-bit float.
double value_of(std::uint16_t bits, hocketDataType_t type) {
  const int mantissa_bits = type == hocketFloat16 ? 10 : 7;
  const int bias = type == hocketFloat16 ? 15 : 127;
  const int exponent_bits = 15 - mantissa_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/// For every instruction set of this machine.
template <typename Action>
void on_each_target(Action action) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    action(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Convert, every_16_bit_number_survives_the_way_to_fp32_and_back) {
  std::vector<std::uint16_t> all(65536), back(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(65536);
  on_each_target([&](const char* target) {
    for (const hocketDataType_t type : {hocketFloat16, hocketBfloat16}) {
      widen(all.data(), wide.data(), all.size(), type);
      narrow(wide.data(), back.data(), all.size(), type);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const double expected = value_of(all[i], type);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(value_of(back[i], type))) << target << i;
        } else {
          ASSERT_EQ(static_cast<double>(wide[i]), expected) << target << ' ' << i;
          ASSERT_EQ(back[i], all[i]) << target << ' ' << i;
        }
      }
    }
  });
}

TEST(Convert, numbers_are_rounded_to_the_nearest_and_ties_to_even) {
  std::mt19937_64 random(tests::seed());
  std::vector<float> from(1003);
  for (float& each : from) each = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  // Halfway between two neighbours of each type.
  from[0] = 1.0f + 0x1p-11f, from[1] = 1.0f + 0x3p-11f, from[2] = 1.0f + 0x1p-8f;
  from[3] = 1.0f + 0x3p-8f, from[4] = 65519.0f, from[5] = 65520.0f, from[6] = 0x1p-25f;
  std::vector<std::uint16_t> to(from.size());
  on_each_target([&](const char* target) {
    for (const hocketDataType_t type : {hocketFloat16, hocketBfloat16}) {
      narrow(from.data(), to.data(), from.size(), type);
      for (std::size_t i = 0; i < from.size(); ++i) {
        const double exact = from[i], rounded = value_of(to[i], type);
        if (std::isnan(exact)) {
          ASSERT_TRUE(std::isnan(rounded)) << target << ' ' << i;
          continue;
        }
        ASSERT_EQ(std::signbit(exact), (to[i] & 0x8000) != 0);
        if (std::isinf(rounded)) {
          ASSERT_GE(std::fabs(exact), type == hocketFloat16 ? 65520.0 : 0x1.ffp127) << target;
          continue;
        }
        // No neighbour is nearer; if one is as near, the last bit is 0.
        for (const int step : {-1, 1}) {
          if ((to[i] & 0x7fff) == 0 && step < 0) continue;
          const auto bits = static_cast<std::uint16_t>(to[i] + step);
          const double other = value_of(bits, type);
          if (std::isinf(other)) continue;
          const double mine = std::fabs(rounded - exact), its = std::fabs(other - exact);
          ASSERT_TRUE(mine < its || (mine == its && (to[i] & 1) == 0)) << target << ' ' << exact;
        }
      }
    }
  });
}

std::vector<Parameter> compressed_model() {
  return {{"embedding", hocketFloat32, {40, 30}, {}},
          {"bias", hocketFloat32, {30}, {}},
          {"kernel", hocketFloat32, {16, 3, 5}, {}},
          {"wide", hocketFloat64, {8, 8}, {}}};
}

std::span<float> floats(GradientReducer& reducer, int parameter) {
  return {static_cast<float*>(reducer.gradient(parameter)),
          reducer.parameters()[static_cast<std::size_t>(parameter)].elements()};
}

template <typename Fill>
void step(GradientReducer& reducer, Fill fill) {
  reducer.begin();
  for (const int p : {3, 2, 1, 0}) {
    if (p == 3) {
      std::fill_n(static_cast<double*>(reducer.gradient(3)), 64,
                  1.0 + reducer.communicator().rank());
    } else {
      const std::span<float> out = floats(reducer, p);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = fill(p, i);
    }
    reducer.ready(p);
  }
  reducer.end();
}

TEST(Compression, to_16_bits_adds_up_in_fp32_and_rounds_once) {
  for (const hocketDataType_t wire : {hocketFloat16, hocketBfloat16}) {
    run_ranks(3, [&](Communicator& comm) {
      GradientReducer reducer(comm, compressed_model(),
                              {.reduction = std::make_shared<CompressedAllReduce>(wire)});
      for (int s = 0; s < 3; ++s) {
        // 256 + 1/8 + 1/8 in bf16 would be 256 if partial sums were rounded; /3 is 85.4167.
        step(reducer, [&](int, std::size_t) { return comm.rank() == 0 ? 256.0f : 0.125f; });
        std::uint16_t expected = 0;
        const float mean = (256.0f + 0.25f) / 3;
        narrow(&mean, &expected, 1, wire);
        EXPECT_EQ(floats(reducer, 0)[7], static_cast<float>(value_of(expected, wire)));
        EXPECT_EQ(static_cast<double*>(reducer.gradient(3))[5], 2.0);  // not fp32: as it is
      }
    });
  }
}

TEST(Compression, refuses_types_that_are_no_16_bit_floats) {
  EXPECT_THROW(CompressedAllReduce{hocketFloat32}, InvalidArgument);
  EXPECT_THROW(CompressedAllReduce{hocketInt64}, InvalidArgument);
  EXPECT_THROW(PowerSgd({.rank = 0}), InvalidArgument);
  EXPECT_THROW(PowerSgd({.min_compression = 0.5}), InvalidArgument);
}

TEST(PowerSgd, of_a_gradient_of_its_rank_is_exact_after_the_first_steps) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(
        comm, compressed_model(),
        {.reduction = std::make_shared<PowerSgd>(PowerSgdOptions{.rank = 2, .start_step = 1})});
    const auto gradient = [](int rank, int p, std::size_t i) {
      const auto columns = p == 0 ? 30u : 15u;
      const auto row = static_cast<float>(i / columns), column = static_cast<float>(i % columns);
      return std::sin(row) * static_cast<float>(rank + 1) + row * 0.1f * std::cos(column);
    };
    for (int s = 0; s < 5; ++s) {
      step(reducer, [&](int p, std::size_t i) { return gradient(comm.rank(), p, i); });
      for (const int p : {0, 1, 2}) {
        for (std::size_t i = 0; i < floats(reducer, p).size(); ++i) {
          const float mean = (gradient(0, p, i) + gradient(1, p, i)) / 2;
          ASSERT_NEAR(floats(reducer, p)[i], mean, s == 0 ? 1e-6 : 2e-4) << s << ' ' << p;
        }
      }
      EXPECT_EQ(static_cast<double*>(reducer.gradient(3))[5], 1.5);
    }
  });
}

TEST(PowerSgd, adds_what_it_left_out_to_later_gradients) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(
        comm, compressed_model(),
        {.reduction = std::make_shared<PowerSgd>(PowerSgdOptions{.rank = 1, .start_step = 0})});
    // The sum over many steps of what was applied is the sum of the gradients, but for one error.
    const auto gradient = [](int rank, std::size_t i) {
      return std::sin(static_cast<float>(i * i) + static_cast<float>(rank));
    };
    constexpr int steps = 200;
    std::vector<double> applied(1200);
    double first_error = 0;
    for (int s = 0; s < steps; ++s) {
      step(reducer, [&](int, std::size_t i) { return gradient(comm.rank(), i); });
      double error = 0;
      for (std::size_t i = 0; i < applied.size(); ++i) {
        applied[i] += floats(reducer, 0)[i];
        const double mean = (gradient(0, i) + gradient(1, i)) / 2.0;
        error += std::fabs(applied[i] / (s + 1) - mean);
      }
      if (s == 0) first_error = error;
      if (s == steps - 1) {
        EXPECT_LT(error, first_error / 4);
      }
    }
  });
}

TEST(PowerSgd, gives_all_ranks_the_same_bits) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(
        comm, compressed_model(),
        {.reduction = std::make_shared<PowerSgd>(PowerSgdOptions{.rank = 2, .start_step = 1})});
    for (int s = 0; s < 4; ++s) {
      step(reducer, [&](int p, std::size_t i) {
        return std::cos(static_cast<float>(i * 7 + static_cast<std::size_t>(p * s)) +
                        static_cast<float>(comm.rank()));
      });
      for (const int p : {0, 1, 2}) {
        const std::span<float> mine = floats(reducer, p);
        std::vector<float> of_rank_0(mine.begin(), mine.end());
        comm.broadcast(of_rank_0, 0);
        EXPECT_TRUE(std::equal(mine.begin(), mine.end(), of_rank_0.begin()));
      }
    }
  });
}

}  // namespace
}  // namespace hocket::training
