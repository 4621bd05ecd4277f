// The arithmetic of AdamW, as plain code and as vector code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hocket/training/adamw.hpp>

// Below AVX2 only SSE4 is compiled, to save compile time; with a sanitizer, less (compiler.cmake).
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif

namespace hocket::training {

/// The numbers of a step, which are computed in float64 once. T: the type that the update
/// computes in.
template <class T>
struct AdamWFactors {
  T scale;  // of gradients
  T decay;  // of the parameter: 1 - learning rate x weight decay
  T keep1;  // beta1
  T add1;   // 1 - beta1
  T keep2;  // beta2
  T add2;   // 1 - beta2
  T root;   // square root of the second moment's bias correction
  T epsilon;
  T rate;  // minus the learning rate over the first moment's bias correction
};

struct AdamWNumbers {
  AdamWFactors<double> wide;
  AdamWFactors<float> narrow;
};

/// The parameter's and the gradient's type.
enum class AdamWTypes : int {
  f64_f64,
  f32_f32,
  f32_f16,
  f32_bf16,
  f16_f16,
  f16_f32,
  bf16_bf16,
  bf16_f32,
  count
};

/// Updates elements [begin, end).
using AdamWKernel = void (*)(const AdamWData& data, const AdamWNumbers& numbers, std::size_t begin,
                             std::size_t end);

/// Compiled for the baseline instruction set.
extern const AdamWKernel adamw_plain[static_cast<int>(AdamWTypes::count)];
/// For this processor; may leave the last elements out, and returns the end of the others.
std::size_t adamw_vectors(AdamWTypes types, const AdamWData& data, const AdamWNumbers& numbers);

}  // namespace hocket::training
