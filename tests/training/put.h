// Elements of gradients and parameters, written as numbers.
#pragma once

#include <hocket/hocket.h>

#include <cstddef>
#include <cstdint>

#include "training/small_floats.h"

namespace tests {

/// Rounds value to the datatype, one of those of gradients, and writes it as element i of data.
inline void put(hocketDataType_t dtype, void* data, std::size_t i, double value) {
  using namespace hocket::training;
  const auto narrow = static_cast<float>(value);
  if (dtype == hocketFloat64) static_cast<double*>(data)[i] = value;
  if (dtype == hocketFloat32) static_cast<float*>(data)[i] = narrow;
  if (dtype == hocketFloat16) static_cast<std::uint16_t*>(data)[i] = small::Float16::narrow(narrow);
  if (dtype == hocketBfloat16) {
    static_cast<std::uint16_t*>(data)[i] = small::Bfloat16::narrow(narrow);
  }
}

}  // namespace tests
