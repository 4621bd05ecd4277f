// AdamW in one pass: formulas, types, and bits on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <hocket/hocket.hpp>
#include <hocket/training/adamw.hpp>
#include <hocket/training/parameter.hpp>
#include <limits>
#include <random>

#include "seed.h"
#include "training/adamw_kernels.h"  // which targets exist
#include "training/ranks.h"
#include "training/small_floats.h"
// After adamw_kernels.h.
#include "hwy/targets.h"

namespace hocket::training {
namespace {

using tests::message_of;

/// The arrays of a run of elements, which begin at an odd address of their type.
class Elements {
 public:
  Elements(std::size_t elements, hocketDataType_t dtype, hocketDataType_t gradient_dtype)
      : elements_(elements), dtype_(dtype), gradient_dtype_(gradient_dtype) {
    for (Array& array : arrays_) array.resize(elements + 1);
  }

  void fill(std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    constexpr double special[] = {0, -0.0, 1e-30, 65504, 70000, 1e-7, 6e-8, -3e38};
    for (std::size_t i = 0; i < elements_; ++i) {
      const auto one = [&] { return random() % 8 == 0 ? special[random() % 8] : normal(random); };
      const double value = one();
      put(parameter, dtype_, i, value);
      if (has_master()) put(master, hocketFloat32, i, value);
      put(gradient, gradient_dtype_, i, one());
      put(exp_avg, state_dtype(), i, one());
      put(exp_avg_sq, state_dtype(), i, std::abs(one()));
    }
  }
  void set(std::size_t i, double value, double its_gradient) {
    put(parameter, dtype_, i, value);
    if (has_master()) put(master, hocketFloat32, i, value);
    put(gradient, gradient_dtype_, i, its_gradient);
  }

  AdamWData data(std::size_t begin, std::size_t end) {
    return {.elements = end - begin,
            .dtype = dtype_,
            .gradient_dtype = gradient_dtype_,
            .parameter = address(parameter, dtype_, begin),
            .gradient = address(gradient, gradient_dtype_, begin),
            .master =
                has_master() ? static_cast<float*>(address(master, hocketFloat32, begin)) : nullptr,
            .exp_avg = address(exp_avg, state_dtype(), begin),
            .exp_avg_sq = address(exp_avg_sq, state_dtype(), begin)};
  }
  AdamWData data() { return data(0, elements_); }
  /// All NaN become equal: their payloads are not promised.
  std::vector<std::vector<std::uint64_t>> bits() {
    std::vector<std::vector<std::uint64_t>> all(5);
    const hocketDataType_t dtypes[] = {dtype_, gradient_dtype_, hocketFloat32, state_dtype(),
                                       state_dtype()};
    for (int a = 0; a < 5; ++a) {
      if (a == master && !has_master()) continue;
      for (std::size_t i = 0; i < elements_; ++i) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, address(a, dtypes[a], i), element_bytes(dtypes[a]));
        all[static_cast<std::size_t>(a)].push_back(std::isnan(get(a, dtypes[a], i)) ? ~0ull : bits);
      }
    }
    return all;
  }
  double value(std::size_t i) { return get(parameter, dtype_, i); }
  double master_value(std::size_t i) { return get(master, hocketFloat32, i); }

 private:
  using Array = std::vector<double>;  // room for every type
  enum { parameter, gradient, master, exp_avg, exp_avg_sq };

  bool has_master() const { return element_bytes(dtype_) == 2; }
  hocketDataType_t state_dtype() const {
    return dtype_ == hocketFloat64 ? hocketFloat64 : hocketFloat32;
  }
  void* address(int array, hocketDataType_t dtype, std::size_t i) {
    return reinterpret_cast<std::byte*>(arrays_[array].data()) + (i + 1) * element_bytes(dtype);
  }
  void put(int array, hocketDataType_t dtype, std::size_t i, double value) {
    const auto narrow = static_cast<float>(value);
    const std::uint16_t small =
        dtype == hocketFloat16 ? small::Float16::narrow(narrow) : small::Bfloat16::narrow(narrow);
    const void* const from = dtype == hocketFloat64   ? static_cast<const void*>(&value)
                             : dtype == hocketFloat32 ? static_cast<const void*>(&narrow)
                                                      : &small;
    std::memcpy(address(array, dtype, i), from, element_bytes(dtype));
  }
  double get(int array, hocketDataType_t dtype, std::size_t i) {
    const void* const from = address(array, dtype, i);
    double wide = 0;
    float narrow = 0;
    std::uint16_t small = 0;
    std::memcpy(dtype == hocketFloat64   ? static_cast<void*>(&wide)
                : dtype == hocketFloat32 ? static_cast<void*>(&narrow)
                                         : &small,
                from, element_bytes(dtype));
    if (dtype == hocketFloat64) return wide;
    if (dtype == hocketFloat32) return narrow;
    return dtype == hocketFloat16 ? small::Float16::widen(small) : small::Bfloat16::widen(small);
  }

  const std::size_t elements_;
  const hocketDataType_t dtype_, gradient_dtype_;
  Array arrays_[5];
};

constexpr std::pair<hocketDataType_t, hocketDataType_t> all_types[] = {
    {hocketFloat64, hocketFloat64},   {hocketFloat32, hocketFloat32},
    {hocketFloat32, hocketFloat16},   {hocketFloat32, hocketBfloat16},
    {hocketFloat16, hocketFloat16},   {hocketFloat16, hocketFloat32},
    {hocketBfloat16, hocketBfloat16}, {hocketBfloat16, hocketFloat32}};

/// Runs body once on each instruction set that this processor has, the plain one included.
template <class Body>
void on_every_target(Body body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(AdamW, has_the_bits_of_plain_code_on_every_instruction_set_in_every_type) {
  const std::uint64_t seed = tests::seed();
  int targets = 0;
  on_every_target([&](const char* target) {
    ++targets;
    for (const auto& [dtype, gradient_dtype] : all_types) {
      for (const std::size_t elements : {1, 3, 8, 16, 37, 200}) {
        std::mt19937_64 random(seed + elements);
        Elements run(elements, dtype, gradient_dtype);
        run.fill(random);
        Elements plain = run;
        for (int step = 1; step <= 3; ++step) {
          adamw(run.data(), {}, step, 0.5);
          adamw_reference(plain.data(), {}, step, 0.5);
        }
        ASSERT_EQ(run.bits(), plain.bits()) << target << ' ' << dtype_name(dtype) << ' '
                                            << dtype_name(gradient_dtype) << ' ' << elements;
      }
    }
  });
  EXPECT_GE(targets, 1);
}

TEST(AdamW, has_the_same_bits_wherever_a_run_is_cut) {
  std::mt19937_64 random(tests::seed());
  for (const auto& [dtype, gradient_dtype] : all_types) {
    Elements whole(100, dtype, gradient_dtype);
    whole.fill(random);
    for (int round = 0; round < 20; ++round) {
      Elements cut = whole, expected = whole;
      const std::size_t at = random() % 101;
      adamw(expected.data(), {}, 7);
      adamw(cut.data(0, at), {}, 7);
      adamw(cut.data(at, 100), {}, 7);
      ASSERT_EQ(cut.bits(), expected.bits()) << dtype_name(dtype) << ' ' << at;
    }
  }
}

TEST(AdamW, takes_the_steps_of_the_paper) {
  const AdamWOptions options{
      .learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.3};
  Elements run(1, hocketFloat64, hocketFloat64);
  double parameter = 0.7, m = 0, v = 0;
  run.set(0, parameter, 0);
  for (int step = 1; step <= 20; ++step) {
    const double gradient = std::sin(step);
    run.set(0, run.value(0), 4 * gradient);
    adamw(run.data(), options, step, 0.25);
    m = options.beta1 * m + (1 - options.beta1) * gradient;
    v = options.beta2 * v + (1 - options.beta2) * gradient * gradient;
    const double first = m / (1 - std::pow(options.beta1, step));
    const double second = v / (1 - std::pow(options.beta2, step));
    parameter -= options.learning_rate *
                 (first / (std::sqrt(second) + options.epsilon) + options.weight_decay * parameter);
    ASSERT_NEAR(run.value(0), parameter, 1e-14);
  }
}

TEST(AdamW, adds_small_steps_up_in_the_master_copy_of_16_bit_parameters) {
  for (const hocketDataType_t dtype : {hocketFloat16, hocketBfloat16}) {
    Elements run(40, dtype, dtype);
    const AdamWOptions small_steps{.learning_rate = 1e-5, .weight_decay = 0};
    for (std::size_t i = 0; i < 40; ++i) run.set(i, 1, 1);
    adamw(run.data(), small_steps, 1);
    EXPECT_EQ(run.value(39), 1);  // a step of 1e-5 is less than half of the distance of values at 1
    EXPECT_NEAR(run.master_value(39), 1 - 1e-5, 1e-7);
    for (int step = 2; step <= 1000; ++step) adamw(run.data(), small_steps, step);
    EXPECT_NEAR(run.value(39), 0.99, 0.004);
    EXPECT_NEAR(run.master_value(39), 0.99, 1e-4);
  }
}

TEST(AdamW, refuses_types_and_steps_that_have_no_update) {
  Elements run(4, hocketFloat32, hocketFloat32);
  AdamWData data = run.data();
  EXPECT_NE(message_of<InvalidArgument>([&] { adamw(data, {}, 0); }).find("from 1"),
            std::string::npos);
  data.gradient_dtype = hocketFloat64;
  EXPECT_NE(message_of<InvalidArgument>([&] {
              adamw(data, {}, 1);
            }).find("parameters in float32 with gradients in float64"),
            std::string::npos);
  data = run.data();
  data.dtype = data.gradient_dtype = hocketBfloat16;
  EXPECT_NE(message_of<InvalidArgument>([&] { adamw(data, {}, 1); }).find("master"),
            std::string::npos);
}

TEST(SmallFloats, float16_has_the_value_of_its_fields_and_comes_back) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int mantissa = static_cast<int>(bits & 1023);
    const double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                             : exponent == 31 ? std::numeric_limits<double>::infinity()
                                              : std::ldexp(1024 + mantissa, exponent - 25);
    const float wide = small::Float16::widen(half);
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      continue;
    }
    ASSERT_EQ(wide, bits < 0x8000 ? magnitude : -magnitude) << bits;
    ASSERT_EQ(small::Float16::narrow(wide), half) << bits;
  }
}

TEST(SmallFloats, rounding_takes_the_nearest_value_and_ties_go_to_even) {
  // Between every pair of neighbours: just below the middle, the middle, just above.
  const auto check = [](auto format, std::uint16_t low) {
    using Format = decltype(format);
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float middle = (Format::widen(low) + Format::widen(high)) / 2;
    ASSERT_EQ(Format::narrow(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(Format::narrow(middle), low % 2 == 0 ? low : high);
    ASSERT_EQ(Format::narrow(std::nextafter(middle, 1e38f)), high);
  };
  for (std::uint16_t low = 0; low < 0x7bff; ++low) check(small::Float16{}, low);
  for (std::uint16_t low = 1; low < 0x7e00; ++low) check(small::Bfloat16{}, low);
  EXPECT_EQ(small::Float16::narrow(65519.996f), 0x7bff);
  EXPECT_EQ(small::Float16::narrow(65520.0f), 0x7c00);
  EXPECT_EQ(small::Bfloat16::narrow(std::nanf("")), 0x7fc0);
}

}  // namespace
}  // namespace hocket::training
