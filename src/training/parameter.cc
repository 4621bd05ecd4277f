#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hocket/training/parameter.hpp>

namespace hocket::training {

const char* dtype_name(hocketDataType_t dtype) noexcept {
  switch (dtype) {
    case hocketFloat64:
      return "float64";
    case hocketFloat32:
      return "float32";
    case hocketFloat16:
      return "float16";
    case hocketBfloat16:
      return "bfloat16";
    case hocketFloat8e4m3:
      return "float8_e4m3";
    case hocketFloat8e5m2:
      return "float8_e5m2";
    default:
      return "no floating-point type";
  }
}

std::string describe(const Parameter& parameter) {
  return fmt::format(
      "'{}' ({}, {})", parameter.name, dtype_name(parameter.dtype),
      parameter.sizes.empty() ? "scalar" : fmt::format("{}", fmt::join(parameter.sizes, " x ")));
}

}  // namespace hocket::training
