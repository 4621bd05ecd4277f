// Norms of gradients over every sharding, and the arithmetic under them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <hocket/training/clip.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "seed.h"
#include "training/put.h"
#include "training/range_math.h"  // which targets exist
#include "training/ranks.h"
#include "training/small_floats.h"
// After range_math.h.
#include "hwy/targets.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::put;
using tests::run_ranks;

constexpr double infinite_norm = std::numeric_limits<double>::infinity();

std::vector<Parameter> clip_model() {
  return {{"w", hocketFloat32, {37, 5}, {}},
          {"h", hocketBfloat16, {130}, {}},
          {"d", hocketFloat64, {63}, {}}};
}

double clip_gradient(int p, std::size_t i) {
  return (static_cast<int>(i) * 5 + p * 3) % 17 - 8;  // also exact in bfloat16
}

/// Every rank gives the same gradients, except that of one element.
void clip_backward(GradientReducer& reducer, double w_at_70) {
  reducer.begin();
  for (const int p : reverse_order(3)) {
    const Parameter& its = reducer.parameters()[static_cast<std::size_t>(p)];
    for (std::size_t i = 0; i < its.elements(); ++i) {
      put(its.dtype, reducer.gradient(p), i, p == 0 && i == 70 ? w_at_70 : clip_gradient(p, i));
    }
    reducer.ready(p);
  }
  reducer.end();
}

double expected_norm(double norm_type) {
  const std::size_t sizes[] = {185, 130, 63};
  double sum = 0, most = 0;
  for (int p = 0; p < 3; ++p) {
    for (std::size_t i = 0; i < sizes[p]; ++i) {
      const double value = p == 0 && i == 70 ? 100 : std::abs(clip_gradient(p, i));
      sum += std::pow(value, norm_type);
      most = std::max(most, value);
    }
  }
  return std::isinf(norm_type) ? most : std::pow(sum, 1 / norm_type);
}

constexpr Sharding all_shardings[] = {Sharding::none, Sharding::zero1, Sharding::zero2};

TEST(Clip, norm_counts_each_element_once_over_every_sharding) {
  for (const Sharding sharding : all_shardings) {
    for (const int ranks : {1, 2, 3, 5}) {
      std::mutex mutex;
      std::map<double, std::vector<double>> norms;
      run_ranks(ranks, [&](Communicator& comm) {
        GradientReducer reducer(comm, clip_model(), {.sharding = sharding});
        clip_backward(reducer, 100);
        for (const double p : {1.0, 2.0, 3.5, infinite_norm}) {
          const double norm = gradient_norm(reducer, {.p = p});
          const std::lock_guard lock(mutex);
          norms[p].push_back(norm);
        }
      });
      for (const auto& [p, of_ranks] : norms) {
        ASSERT_EQ(of_ranks.size(), static_cast<std::size_t>(ranks));
        for (const double norm : of_ranks) {
          EXPECT_EQ(norm, of_ranks[0]) << "all ranks have the same";
          EXPECT_NEAR(norm, expected_norm(p), 1e-12 * norm) << p << ' ' << ranks;
        }
      }
    }
  }
}

TEST(Clip, gradients_have_the_largest_norm_afterwards_or_are_untouched) {
  for (const Sharding sharding : all_shardings) {
    run_ranks(2, [&](Communicator& comm) {
      GradientReducer reducer(comm, {{"w", hocketFloat32, {37, 5}, {}}}, {.sharding = sharding});
      reducer.begin();
      auto* const place = static_cast<float*>(reducer.gradient(0));
      for (std::size_t i = 0; i < 185; ++i) place[i] = static_cast<float>(clip_gradient(0, i));
      reducer.ready(0);
      reducer.end();
      const double norm = gradient_norm(reducer);
      EXPECT_EQ(clip_grad_norm(reducer, 2 * norm), norm);
      EXPECT_EQ(gradient_norm(reducer), norm);
      EXPECT_EQ(clip_grad_norm(reducer, 3), norm);
      EXPECT_NEAR(gradient_norm(reducer), 3, 1e-6);
    });
  }
}

TEST(Clip, norm_that_is_not_finite_is_returned_or_an_error_on_all_ranks_that_names_the_parameter) {
  for (const Sharding sharding : all_shardings) {
    for (const double wrong : {infinite_norm, std::nan("")}) {
      run_ranks(3, [&](Communicator& comm) {
        GradientReducer reducer(comm, clip_model(),
                                {.sharding = sharding, .on_non_finite = OnNonFinite::keep});
        clip_backward(reducer, comm.rank() == 2 ? wrong : 1);
        for (const double p : {2.0, infinite_norm}) {
          EXPECT_FALSE(std::isfinite(gradient_norm(reducer, {.p = p})));
          const std::string message = message_of<InvalidArgument>(
              [&] { (void)clip_grad_norm(reducer, 1, {.p = p, .error_if_nonfinite = true}); });
          // Every rank holds the average, or rank 1 does; the gradient of rank 2 has made it so.
          EXPECT_NE(message.find("'w' (float32, 37 x 5)"), std::string::npos) << message;
          EXPECT_NE(message.find("infinite on rank 2"), std::string::npos) << message;
        }
      });
    }
  }
}

TEST(Clip, refuses_a_norm_without_meaning) {
  run_ranks(1, [](Communicator& comm) {
    GradientReducer reducer(comm, clip_model());
    for (const double p : {0.0, -1.0, std::nan("")}) {
      EXPECT_NE(message_of<InvalidArgument>([&] { (void)gradient_norm(reducer, {.p = p}); }), "");
    }
  });
}

/// Runs of elements of every type in which some are special.
std::vector<std::byte> random_run(std::mt19937_64& random, hocketDataType_t dtype,
                                  std::size_t count) {
  std::normal_distribution<double> normal;
  std::vector<std::byte> run(count * element_bytes(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = random() % 16 == 0 ? 0.0 : normal(random) * 100;
    if (dtype == hocketFloat16) {
      const std::uint16_t half = small::Float16::narrow(static_cast<float>(value));
      std::memcpy(run.data() + 2 * i, &half, 2);
    } else {
      put(dtype, run.data(), i, value);
    }
  }
  return run;
}

TEST(RangeMath, has_the_same_bits_on_every_instruction_set) {
  std::mt19937_64 random(tests::seed());
  for (const hocketDataType_t dtype :
       {hocketFloat64, hocketFloat32, hocketFloat16, hocketBfloat16}) {
    for (const std::size_t count : {1, 7, 16, 100, 333}) {
      const std::vector<std::byte> run = random_run(random, dtype, count);
      const std::vector<std::byte> terms = random_run(random, dtype, count);
      std::vector<std::vector<std::byte>> results;
      std::vector<std::vector<double>> numbers;
      for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
        hwy::SetSupportedTargetsForTest(target);
        hwy::GetChosenTarget().Update(hwy::SupportedTargets());
        std::vector<std::byte> result = run;
        scale(result.data(), count, dtype, 0.37);
        add(result.data(), terms.data(), count, dtype);
        results.push_back(result);
        numbers.push_back({sum_of_powers(run.data(), count, dtype, 2),
                           sum_of_powers(run.data(), count, dtype, infinite_norm)});
      }
      hwy::SetSupportedTargetsForTest(0);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      for (std::size_t i = 1; i < results.size(); ++i) {
        ASSERT_EQ(results[i], results[0]) << dtype_name(dtype) << ' ' << count;
        ASSERT_EQ(numbers[i], numbers[0]) << dtype_name(dtype) << ' ' << count;
      }
    }
  }
}

TEST(RangeMath, finds_a_single_element_that_is_not_finite_anywhere) {
  for (const std::size_t count : {1, 16, 37, 100}) {
    for (std::size_t at = 0; at < count; ++at) {
      for (const double wrong : {infinite_norm, -infinite_norm, std::nan("")}) {
        std::vector<float> run(count, 2);
        EXPECT_TRUE(all_finite(run.data(), count, hocketFloat32));
        run[at] = static_cast<float>(wrong);
        ASSERT_FALSE(all_finite(run.data(), count, hocketFloat32)) << count << ' ' << at;
      }
    }
  }
}

}  // namespace
}  // namespace hocket::training
