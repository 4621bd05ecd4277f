// AdamW in one pass over memory: Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
// 2019. For a loop that keeps its own arrays; the optimizer of a sharded model is in
// hocket/training/sharded_optimizer.hpp.
#pragma once

#include <hocket/hocket.h>

#include <cstddef>
#include <cstdint>

namespace hocket::training {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

/// A run of elements of parameters, with what the optimizer keeps of them. No two arrays overlap.
/// All arrays are aligned to their elements; there are no other requirements.
struct AdamWData {
  std::size_t elements = 0;
  hocketDataType_t dtype = hocketFloat32;  // of parameter: float64, float32, float16, bfloat16
  hocketDataType_t gradient_dtype = hocketFloat32;  // the same, or one of the three smaller types
  void* parameter = nullptr;
  const void* gradient = nullptr;
  /// The parameters in float32, which the update works on; parameter receives them rounded. Only
  /// for float16 and bfloat16.
  float* master = nullptr;
  void* exp_avg = nullptr;     // float32; float64 for parameters in float64
  void* exp_avg_sq = nullptr;  // the same
};

/// One step: reads and writes every element once. 28 bytes of memory traffic an element in float32
/// (read: parameter, gradient, two moments; written: all but the gradient).
///
/// step counts from 1. Gradients are multiplied by gradient_scale first: the reciprocal of a loss's
/// scale, times the factor of a clipped norm.
///
/// Every operation rounds once, in float32 (float64 for float64), in the order of
/// torch::optim::AdamW. So the bits depend neither on the processor's instruction set nor on where
/// a caller cuts a run in two. (Payloads of NaN may differ.)
/// Throws InvalidArgument if the types do not fit, or step is not positive.
void adamw(const AdamWData& data, const AdamWOptions& options, std::int64_t step,
           double gradient_scale = 1);

/// The same in plain code: what the bits of adamw() are compared with.
void adamw_reference(const AdamWData& data, const AdamWOptions& options, std::int64_t step,
                     double gradient_scale = 1);

}  // namespace hocket::training
