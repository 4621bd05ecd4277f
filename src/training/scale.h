// Multiplies gradients, and finds those that are not finite.
#pragma once

#include <hocket/training/tensor_range.hpp>

namespace hocket::training {

/// Multiplies the range by factor, in fp32 for 16-bit types, in the type itself otherwise. Returns
/// whether all numbers were finite before. The type is a floating-point type of at least 16 bits.
bool multiply(const TensorRange& range, double factor);
/// Whether all numbers are finite.
bool is_finite(const TensorRange& range);

}  // namespace hocket::training
