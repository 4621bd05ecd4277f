// Arithmetic on runs of elements of float64, float32, float16 or bfloat16. The bits of results do
// not depend on the instruction set.
#pragma once

#include <hocket/hocket.h>

#include <cstddef>
#include <hocket/training/tensor_range.hpp>

// Below AVX2 only SSE4 is compiled, to save compile time; with a sanitizer, less (compiler.cmake).
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif

namespace hocket::training {

/// data[i] *= factor. For float32 and narrower types the factor is rounded to float32, and products
/// are computed in float32. Returns whether no element was infinite or NaN before.
bool scale(void* data, std::size_t count, hocketDataType_t dtype, double factor);
/// to[i] += from[i]; sums of 16-bit numbers are computed in float32.
void add(void* to, const void* from, std::size_t count, hocketDataType_t dtype);
/// The sum of |data[i]| to the power p, or with p infinite the largest |data[i]|; NaN if any
/// element is NaN. In float64: for p = 2 the relative error is at most count x 2^-57 + 2^-52.
double sum_of_powers(const void* data, std::size_t count, hocketDataType_t dtype, double p);
/// Whether no element is infinite or NaN.
bool all_finite(const void* data, std::size_t count, hocketDataType_t dtype);

inline bool scale(const TensorRange& range, double factor) {
  return scale(range.data, range.elements, range.tensor.dtype, factor);
}
inline bool all_finite(const TensorRange& range) {
  return all_finite(range.data, range.elements, range.tensor.dtype);
}

/// Rounds count numbers to dtype (float16 or bfloat16): to nearest, ties to even. What is too large
/// for float16 becomes infinite. A NaN stays a NaN.
void narrow(const float* from, void* to, std::size_t count, hocketDataType_t dtype);
/// Exact.
void widen(const void* from, float* to, std::size_t count, hocketDataType_t dtype);

}  // namespace hocket::training
