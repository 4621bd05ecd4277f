// Shared by the tests of src/reduce: they run for every instruction set in turn, on data with all
// special values.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reduce/kernels.h"
// kernels.h first: it defines which targets exist.
#include "hwy/targets.h"

namespace hocket::internal::reduce {

/// Runs body once on each instruction set that this processor has, the plain one included.
template <class Body>
void on_every_target(Body body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    forget_targets();
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  forget_targets();
}

/// fp32 bit patterns at the limits of ranges of the formats.
inline std::vector<std::uint32_t> awkward_floats() {
  std::vector<std::uint32_t> bits = {
      0x00000000,                          // zero
      0x00000001, 0x007fffff,              // subnormal
      0x00800000,                          // smallest normal
      0x3f800000, 0x3f800001, 0x40490fdb,  // ordinary
      0x477fe000, 0x477fefff, 0x477ff000,  // fp16: the largest, and where infinity begins
      0x43e00000, 0x43e80000, 0x43e80001,  // e4m3: 448, 464, just past
      0x47600000, 0x476fffff, 0x47700000,  // e5m2: 57344, just below 61440, 61440
      0x38800000, 0x387fffff, 0x33000000, 0x33000001,  // fp16 subnormals
      0x7f7fffff, 0x7f7f8000, 0x7f7f7fff,              // the largest; bf16 rounds to infinity
      0x7f800000,                                      // infinity
      0x7fc00000, 0x7f800001, 0x7fbfffff, 0x7fffffff, 0x7fc12345, 0x7fa00000,  // NaN
  };
  const std::size_t positive = bits.size();
  for (std::size_t i = 0; i < positive; ++i) bits.push_back(bits[i] | 0x80000000);
  return bits;
}

/// The same for fp64.
inline std::vector<std::uint64_t> awkward_doubles() {
  std::vector<std::uint64_t> bits = {0x0000000000000000, 0x0000000000000001, 0x000fffffffffffff,
                                     0x0010000000000000, 0x3ff0000000000000, 0x400921fb54442d18,
                                     0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff0000000000001,
                                     0x7ff8000000000000, 0x7ff8000012345678, 0x7fffffffffffffff};
  const std::size_t positive = bits.size();
  for (std::size_t i = 0; i < positive; ++i) bits.push_back(bits[i] | 0x8000000000000000);
  return bits;
}

/// Fills elements of a dtype (fp32 if wide): random bits, numbers near 1, or special values.
inline void fill_elements(void* to, std::size_t count, Dtype dtype, bool wide,
                          std::mt19937_64& random) {
  static const std::vector<std::uint32_t> floats = awkward_floats();
  static const std::vector<std::uint64_t> doubles = awkward_doubles();
  const bool as_float = dtype == Dtype::float32 || (wide && is_widened(dtype));
  const std::size_t size = as_float ? 4 : size_of(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    const std::uint64_t kind = random() % 3;
    if (as_float && kind == 0) {
      bits = floats[bits % floats.size()];
    } else if (as_float && kind == 1) {
      const float value = static_cast<float>(static_cast<std::int64_t>(bits % 4001) - 2000) / 64;
      std::memcpy(&bits, &value, sizeof value);
    } else if (dtype == Dtype::float64 && kind == 0) {
      bits = doubles[bits % doubles.size()];
    } else if (dtype == Dtype::float64 && kind == 1) {
      const double value = static_cast<double>(static_cast<std::int64_t>(bits % 4001) - 2000) / 64;
      std::memcpy(&bits, &value, sizeof value);
    }
    std::memcpy(static_cast<char*>(to) + i * size, &bits, size);
  }
}

}  // namespace hocket::internal::reduce
