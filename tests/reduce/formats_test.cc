// Compares the conversions of the small formats with their definitions, for every instruction set.
#include "reduce/formats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reduce/fold.h"
#include "reduce_testing.h"
#include "seed.h"

namespace hocket::internal::reduce {
namespace {

/// A format as its standard describes it: an oracle that shares no step with the tested code.
struct Definition {
  Dtype dtype;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  std::uint32_t canonical_nan;
  int width() const { return 1 + exponent_bits + mantissa_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

const Definition definitions[] = {{Dtype::float16, 5, 10, true, 0x7e00},
                                  {Dtype::bfloat16, 8, 7, true, 0x7fc0},
                                  {Dtype::float8_e4m3, 4, 3, false, 0x7f},
                                  {Dtype::float8_e5m2, 5, 2, true, 0x7e}};

double value_of(const Definition& format, std::uint32_t code) {
  const std::uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const int all_ones = (1 << format.exponent_bits) - 1;
  const int exponent = static_cast<int>(code >> format.mantissa_bits) & all_ones;
  const double sign = (code >> (format.width() - 1)) != 0 ? -1 : 1;
  if (format.has_infinity && exponent == all_ones) return mantissa != 0 ? NAN : sign * INFINITY;
  if (!format.has_infinity && exponent == all_ones && mantissa == 7) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  return sign *
         std::ldexp(1 + std::ldexp(mantissa, -format.mantissa_bits), exponent - format.bias());
}

/// The nearest code, ties to the even one, found among all codes by bisection.
std::uint32_t nearest_code(const Definition& format, float value) {
  if (std::isnan(value)) return format.canonical_nan;
  const std::uint32_t sign = std::signbit(value) ? 1u << (format.width() - 1) : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  std::uint32_t largest = (1u << (format.width() - 1)) - 1;  // the largest finite one
  while (!std::isfinite(value_of(format, largest))) --largest;
  const double step = value_of(format, largest) - value_of(format, largest - 1);
  const double limit = value_of(format, largest) + step / 2;  // rounds past the largest from here
  if (magnitude > limit || (magnitude == limit && largest % 2 == 1)) {
    return format.has_infinity ? sign | (largest + 1) : format.canonical_nan;
  }
  std::uint32_t low = 0;
  std::uint32_t high = largest;
  while (low < high) {  // the last code that is not above
    const std::uint32_t middle = (low + high + 1) / 2;
    if (value_of(format, middle) <= magnitude) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (low == largest) return sign | low;
  const double below = magnitude - value_of(format, low);
  const double above = value_of(format, low + 1) - magnitude;
  if (above < below || (above == below && low % 2 == 1)) ++low;
  return sign | low;
}

template <class T>
std::vector<T> convert(Dtype dtype, const void* from, std::size_t count, bool from_wide,
                       void (*how)(const Fold&)) {
  std::vector<T> to(count);
  const FoldSource source{from, from_wide};
  void* const dst = to.data();
  Fold f;
  f.srcs = &source;
  f.dsts = &dst;
  f.wide_dst = !from_wide;
  f.count = count;
  f.dtype = dtype;
  how(f);
  return to;
}

template <class Bits>
void check_widening(const Definition& format, void (*how)(const Fold&), const char* name) {
  std::vector<Bits> codes(std::size_t{1} << format.width());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<Bits>(i);
  const auto wide = convert<std::uint32_t>(format.dtype, codes.data(), codes.size(), false, how);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float value = static_cast<float>(value_of(format, static_cast<std::uint32_t>(i)));
    const std::uint32_t expected =
        std::isnan(value) ? 0x7fc00000 : std::bit_cast<std::uint32_t>(value);
    ASSERT_EQ(wide[i], expected) << name_of(format.dtype) << " code " << i << " on " << name;
  }
}

/// Every value of the format, every midpoint, and the fp32 values next to each.
std::vector<std::uint32_t> decisive_floats(const Definition& format) {
  std::vector<std::uint32_t> bits = awkward_floats();
  const std::uint32_t codes = 1u << (format.width() - 1);
  for (std::uint32_t code = 0; code + 1 < codes; ++code) {
    const double low = value_of(format, code);
    const double high = value_of(format, code + 1);
    for (const double value : {low, (low + high) / 2}) {
      if (!std::isfinite(value)) continue;
      const auto center = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      for (std::uint32_t near : {center - 1, center, center + 1}) {
        if (center == 0 && near > 1) continue;
        bits.push_back(near);
        bits.push_back(near | 0x80000000);
      }
    }
  }
  return bits;
}

template <class Bits>
void check_narrowing(const Definition& format, const std::vector<std::uint32_t>& wide,
                     const std::vector<std::uint32_t>& expected, void (*how)(const Fold&),
                     const char* name) {
  const auto codes = convert<Bits>(format.dtype, wide.data(), wide.size(), true, how);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(codes[i], expected[i])
        << name_of(format.dtype) << " of fp32 bits " << std::hex << wide[i] << " on " << name;
  }
}

TEST(formats, every_code_widens_to_the_value_that_the_standard_gives) {
  for (const Definition& format : definitions) {
    const auto check =
        format.width() == 16 ? check_widening<std::uint16_t> : check_widening<std::uint8_t>;
    check(format, fold_reference, "reference");
    on_every_target([&](const char* name) { check(format, fold, name); });
  }
}

TEST(formats, narrowing_takes_the_nearest_value_and_ties_go_to_even) {
  std::mt19937_64 random(tests::seed());
  for (const Definition& format : definitions) {
    std::vector<std::uint32_t> wide = decisive_floats(format);
    for (int i = 0; i < 50000; ++i) wide.push_back(static_cast<std::uint32_t>(random()));
    std::vector<std::uint32_t> expected;
    for (const std::uint32_t bits : wide) {
      expected.push_back(nearest_code(format, std::bit_cast<float>(bits)));
    }
    const auto check =
        format.width() == 16 ? check_narrowing<std::uint16_t> : check_narrowing<std::uint8_t>;
    check(format, wide, expected, fold_reference, "reference");
    on_every_target([&](const char* name) { check(format, wide, expected, fold, name); });
  }
}

}  // namespace
}  // namespace hocket::internal::reduce
