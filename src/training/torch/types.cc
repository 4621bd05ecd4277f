#include "training/torch/types.h"

namespace hocket::training {
namespace {

struct Types {
  at::ScalarType tensor;
  hocketDataType_t hocket;
};

constexpr Types table[] = {
    {at::kFloat, hocketFloat32},
    {at::kDouble, hocketFloat64},
    {at::kHalf, hocketFloat16},
    {at::kBFloat16, hocketBfloat16},
    {at::kFloat8_e4m3fn, hocketFloat8e4m3},
    {at::kFloat8_e5m2, hocketFloat8e5m2},
    {at::kLong, hocketInt64},
    {at::kInt, hocketInt32},
    {at::kShort, hocketInt16},
    {at::kChar, hocketInt8},
    {at::kUInt64, hocketUint64},
    {at::kUInt32, hocketUint32},
    {at::kUInt16, hocketUint16},
    {at::kByte, hocketUint8},
    {at::kBool, hocketUint8},
};

}  // namespace

std::optional<hocketDataType_t> datatype(at::ScalarType type) {
  for (const Types& each : table) {
    if (each.tensor == type) return each.hocket;
  }
  return std::nullopt;
}

at::ScalarType scalar_type(hocketDataType_t dtype) {
  for (const Types& each : table) {
    if (each.hocket == dtype) return each.tensor;
  }
  return at::ScalarType::Undefined;
}

}  // namespace hocket::training
