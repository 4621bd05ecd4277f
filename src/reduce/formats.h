// The constants of the small floating-point formats, and their conversions value by value. The
// vector kernels follow the same steps.
#pragma once

#include <bit>
#include <cstdint>

#include "base/device.h"

namespace hocket::internal::reduce {

inline constexpr std::uint32_t float_infinity = 0x7f800000;
inline constexpr std::uint32_t float_nan = 0x7fc00000;
inline constexpr std::uint64_t double_nan = 0x7ff8000000000000;

/// A format with a sign, kExponent exponent bits and kMantissa mantissa bits, narrower than fp32 in
/// both. Without infinity (e4m3), only the code of all ones is NaN.
template <class BitsType, int kExponent, int kMantissa, bool kHasInfinity>
struct SmallFormat {
  using Bits = BitsType;
  static constexpr int width = 1 + kExponent + kMantissa;
  static constexpr bool has_infinity = kHasInfinity;
  static constexpr int mantissa = kMantissa;
  static constexpr int bias = (1 << (kExponent - 1)) - 1;
  /// Right shift from the position of a field in fp32 to its position in this format.
  static constexpr int shift = 23 - kMantissa;
  static constexpr std::uint32_t magnitude = (1u << (width - 1)) - 1;
  static constexpr std::uint32_t infinity = ((1u << kExponent) - 1) << kMantissa;
  static constexpr std::uint32_t nan =
      kHasInfinity ? infinity | (1u << (kMantissa - 1)) : magnitude;
  /// fp32's exponent field minus ours.
  static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias) << 23;
  static constexpr std::uint32_t smallest_normal = rebias + (1u << 23);  // as fp32
  /// The power of two beyond the largest number, as fp32: larger values overflow as this one does.
  static constexpr std::uint32_t ceiling =
      rebias + (((1u << kExponent) - (kHasInfinity ? 1u : 0u)) << 23);
  /// The value of the last mantissa bit of a subnormal: as fp32 bits.
  static constexpr std::uint32_t subnormal_unit = static_cast<std::uint32_t>(128 - bias - kMantissa)
                                                  << 23;
  /// The fp32 whose last bit has that value: adding it lets the processor round a subnormal.
  static constexpr std::uint32_t subnormal_rounder = subnormal_unit + (23u << 23);

  HOCKET_HOST_DEVICE static float decode(Bits bits) {
    const std::uint32_t code = bits & magnitude;
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & ~magnitude) << (32 - width);
    std::uint32_t wide = (code << shift) + rebias;
    if (code < (1u << kMantissa)) {
      wide = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(code)) *
                                          std::bit_cast<float>(subnormal_unit));
    } else if (kHasInfinity && code >= infinity) {
      wide += rebias;
    } else if (!kHasInfinity && code == nan) {
      wide = float_nan;
    }
    return std::bit_cast<float>(wide | sign);
  }

  HOCKET_HOST_DEVICE static Bits encode(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    std::uint32_t code = bits & 0x7fffffff;
    const std::uint32_t sign = (bits & 0x80000000) >> (32 - width);
    if (code > float_infinity) return static_cast<Bits>(nan);
    if (code > ceiling) code = ceiling;
    if (code < smallest_normal) {
      const float sum = std::bit_cast<float>(code) + std::bit_cast<float>(subnormal_rounder);
      code = std::bit_cast<std::uint32_t>(sum) - subnormal_rounder;
    } else {
      const std::uint32_t odd = (code >> shift) & 1;
      code = (code - rebias + ((1u << (shift - 1)) - 1) + odd) >> shift;
    }
    if (!kHasInfinity && code >= nan) return static_cast<Bits>(nan);
    return static_cast<Bits>(code | sign);
  }
};

using Float16 = SmallFormat<std::uint16_t, 5, 10, true>;
using E4m3 = SmallFormat<std::uint8_t, 4, 3, false>;
using E5m2 = SmallFormat<std::uint8_t, 5, 2, true>;

/// The upper half of an fp32.
struct Bfloat16 {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t nan = float_nan >> 16;

  HOCKET_HOST_DEVICE static float decode(Bits bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  HOCKET_HOST_DEVICE static Bits encode(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffff) > float_infinity) return static_cast<Bits>(nan);
    return static_cast<Bits>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

}  // namespace hocket::internal::reduce
