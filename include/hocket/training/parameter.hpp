// What the training layer knows of a parameter of a model.
#pragma once

#include <hocket/hocket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hocket::training {

/// A trainable parameter. Its gradient has the same type, sizes and strides. The training layer
/// reduces it as a run of elements(); it compares everything here between the ranks.
struct Parameter {
  std::string name{};                      // as errors and checkpoints call it; unique in a model
  hocketDataType_t dtype = hocketFloat32;  // a floating-point type
  std::vector<std::int64_t> sizes{};       // elements in each dimension; empty: a scalar
  std::vector<std::int64_t> strides{};     // in elements; empty: row-major

  /// The product of the sizes.
  [[nodiscard]] std::size_t elements() const noexcept {
    std::size_t product = 1;
    for (const std::int64_t size : sizes) product *= static_cast<std::size_t>(size);
    return product;
  }
  bool operator==(const Parameter&) const = default;
};

/// The bytes of an element of a floating-point type; 0: it is no floating-point type.
[[nodiscard]] constexpr std::size_t element_bytes(hocketDataType_t dtype) noexcept {
  switch (dtype) {
    case hocketFloat64:
      return 8;
    case hocketFloat32:
      return 4;
    case hocketFloat16:
    case hocketBfloat16:
      return 2;
    case hocketFloat8e4m3:
    case hocketFloat8e5m2:
      return 1;
    default:
      return 0;
  }
}

/// "float32", "bfloat16", ...
[[nodiscard]] const char* dtype_name(hocketDataType_t dtype) noexcept;
/// "'block.0.weight' (float32, 384 x 128)": how errors name a parameter.
[[nodiscard]] std::string describe(const Parameter& parameter);

}  // namespace hocket::training
