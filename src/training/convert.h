// Conversion between fp32 and the 16-bit types.
#pragma once

#include <hocket/hocket.h>

#include <cstddef>

namespace hocket::training {

/// Rounds count numbers to wire (hocketFloat16 or hocketBfloat16): to nearest, ties to even. What
/// is too large for fp16 becomes infinite. A NaN stays a NaN.
void narrow(const float* from, void* to, std::size_t count, hocketDataType_t wire);
/// Exact.
void widen(const void* from, float* to, std::size_t count, hocketDataType_t wire);

}  // namespace hocket::training
