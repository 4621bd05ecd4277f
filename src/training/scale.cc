#include "training/scale.h"

#include <algorithm>
#include <cstdint>

#include "training/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/scale.cc"  // NOLINT: Highway's way
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hocket::training::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Writes only if `writes`. A finite number times 0 is 0, another number times 0 is NaN: so the sum
/// of all products with 0 says whether all are finite, at the cost of one instruction a vector.
template <bool writes, typename T>
bool multiply_all(T* data, std::size_t count, T factor) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  const auto zero = hn::Zero(d);
  auto sum = zero;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(d, data + i);
    sum = hn::MulAdd(value, zero, sum);
    if constexpr (writes) hn::StoreU(hn::Mul(value, factors), d, data + i);
  }
  T rest = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) {
    rest += data[i] * T{0};
    if constexpr (writes) data[i] *= factor;
  }
  return rest == T{0};
}

bool multiply_float(float* data, std::size_t count, float factor) {
  return multiply_all<true>(data, count, factor);
}
bool multiply_double(double* data, std::size_t count, double factor) {
  return multiply_all<true>(data, count, factor);
}
bool check_float(float* data, std::size_t count) { return multiply_all<false>(data, count, 1.0f); }
bool check_double(double* data, std::size_t count) { return multiply_all<false>(data, count, 1.0); }

}  // namespace hocket::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::training {
namespace {

HWY_EXPORT(multiply_float);
HWY_EXPORT(multiply_double);
HWY_EXPORT(check_float);
HWY_EXPORT(check_double);

/// Widens blocks that stay in the first cache.
bool walk_16_bits(const TensorRange& range, float factor, bool writes) {
  constexpr std::size_t block = 2048;
  float wide[block];
  bool finite = true;
  auto* const data = static_cast<std::uint16_t*>(range.data);
  for (std::size_t i = 0; i < range.elements; i += block) {
    const std::size_t count = std::min(block, range.elements - i);
    widen(data + i, wide, count, range.tensor.dtype);
    if (writes) {
      finite = HWY_DYNAMIC_DISPATCH(multiply_float)(wide, count, factor) && finite;
      narrow(wide, data + i, count, range.tensor.dtype);
    } else {
      finite = HWY_DYNAMIC_DISPATCH(check_float)(wide, count) && finite;
    }
  }
  return finite;
}

}  // namespace

bool multiply(const TensorRange& range, double factor) {
  if (range.tensor.dtype == hocketFloat64) {
    return HWY_DYNAMIC_DISPATCH(multiply_double)(static_cast<double*>(range.data), range.elements,
                                                 factor);
  }
  const auto narrow_factor = static_cast<float>(factor);
  if (range.tensor.dtype == hocketFloat32) {
    return HWY_DYNAMIC_DISPATCH(multiply_float)(static_cast<float*>(range.data), range.elements,
                                                narrow_factor);
  }
  return walk_16_bits(range, narrow_factor, true);
}

bool is_finite(const TensorRange& range) {
  if (range.tensor.dtype == hocketFloat64) {
    return HWY_DYNAMIC_DISPATCH(check_double)(static_cast<double*>(range.data), range.elements);
  }
  if (range.tensor.dtype == hocketFloat32) {
    return HWY_DYNAMIC_DISPATCH(check_float)(static_cast<float*>(range.data), range.elements);
  }
  return walk_16_bits(range, 1.0f, false);
}

}  // namespace hocket::training
#endif
