#include "training/convert.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/convert.cc"  // NOLINT: Highway's way
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hocket::training::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using Halves = hn::Rebind<std::uint16_t, Floats>;

using Signed = hn::RebindToSigned<Floats>;

/// The lower halves of words. Highway narrows signed words, and saturates: sign-extended, none
/// does.
template <typename V>
auto lower_halves(V words) {
  const hn::Rebind<std::int16_t, Floats> signed_halves;
  const auto extended = hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(Signed(), words)));
  return hn::BitCast(Halves(), hn::DemoteTo(signed_halves, extended));
}

/// The upper half of the fp32's bits, rounded; a NaN keeps its sign and becomes quiet.
template <typename V>
auto narrowed_bfloat16(V value) {
  const Words words;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(words, 0x7fff), odd));
  const auto is_nan = hn::RebindMask(words, hn::IsNaN(value));
  const auto quiet = hn::Or(bits, hn::Set(words, 0x00400000));
  return lower_halves(hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded)));
}

/// Not by Highway's conversion, which without the instruction for it does not round ties to even.
template <typename V>
auto narrowed_float16(V value) {
  const Signed words;
  constexpr int rebias = 112 << 23;  // the difference of the exponents' biases
  const auto bits = hn::BitCast(words, value);
  const auto magnitude = hn::And(bits, hn::Set(words, 0x7fffffff));
  const auto sign = hn::ShiftRight<16>(hn::BitCast(Words(), hn::Xor(bits, magnitude)));
  const auto bounded = hn::Min(magnitude, hn::Set(words, 0x47800000));  // 65536: becomes infinite
  const auto odd = hn::And(hn::ShiftRight<13>(bounded), hn::Set(words, 1));
  const auto half_below = hn::Sub(bounded, hn::Set(words, rebias - 0xfff));
  const auto normal = hn::ShiftRight<13>(hn::Add(half_below, odd));
  // 0.5 has the subnormal numbers' unit, 2^-24, as the value of its last bit: the sum is rounded to
  // it.
  const auto unit = hn::Set(Floats(), 0.5f);
  const auto subnormal = hn::Sub(hn::BitCast(words, hn::Add(hn::BitCast(Floats(), bounded), unit)),
                                 hn::BitCast(words, unit));
  const auto is_normal = hn::Gt(bounded, hn::Set(words, 0x387fffff));  // at least 2^-14
  const auto is_nan = hn::Gt(magnitude, hn::Set(words, 0x7f800000));
  const auto code =
      hn::IfThenElse(is_nan, hn::Set(words, 0x7e00), hn::IfThenElse(is_normal, normal, subnormal));
  return lower_halves(hn::Or(code, hn::BitCast(words, sign)));
}

template <typename V>
auto widened_float16(V halves) {
  const Signed words;
  const auto bits = hn::PromoteTo(words, halves);
  const auto code = hn::And(bits, hn::Set(words, 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, code));
  const auto rebias = hn::Set(words, 112 << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(code), rebias);
  const auto special = hn::Add(normal, rebias);  // infinite, or a NaN
  const auto subnormal =
      hn::BitCast(words, hn::Mul(hn::ConvertTo(Floats(), code), hn::Set(Floats(), 0x1p-24f)));
  const auto value =
      hn::IfThenElse(hn::Gt(code, hn::Set(words, 0x7bff)), special,
                     hn::IfThenElse(hn::Gt(code, hn::Set(words, 0x3ff)), normal, subnormal));
  return hn::BitCast(Floats(), hn::Or(value, sign));
}

struct ToBfloat16 {
  template <typename V>
  auto operator()(V value) const {
    return narrowed_bfloat16(value);
  }
};
struct ToFloat16 {
  template <typename V>
  auto operator()(V value) const {
    return narrowed_float16(value);
  }
};
struct FromBfloat16 {
  template <typename V>
  auto operator()(V halves) const {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), halves)));
  }
};
struct FromFloat16 {
  template <typename V>
  auto operator()(V halves) const {
    return widened_float16(halves);
  }
};

template <typename InTag, typename OutTag, typename Convert>
void convert_all(const hn::TFromD<InTag>* from, hn::TFromD<OutTag>* to, std::size_t count,
                 Convert convert) {
  const InTag in;
  const OutTag out;
  const std::size_t lanes = hn::Lanes(in);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(convert(hn::LoadU(in, from + i)), out, to + i);
  HWY_ALIGN hn::TFromD<OutTag> last[HWY_MAX_BYTES / sizeof(std::uint16_t)];
  for (; i < count; ++i) {
    hn::StoreU(convert(hn::Set(in, from[i])), out, last);
    to[i] = last[0];
  }
}

void to_bfloat16(const float* from, std::uint16_t* to, std::size_t count) {
  convert_all<Floats, Halves>(from, to, count, ToBfloat16());
}
void to_float16(const float* from, std::uint16_t* to, std::size_t count) {
  convert_all<Floats, Halves>(from, to, count, ToFloat16());
}
void from_bfloat16(const std::uint16_t* from, float* to, std::size_t count) {
  convert_all<Halves, Floats>(from, to, count, FromBfloat16());
}
void from_float16(const std::uint16_t* from, float* to, std::size_t count) {
  convert_all<Halves, Floats>(from, to, count, FromFloat16());
}

}  // namespace hocket::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::training {

HWY_EXPORT(to_bfloat16);
HWY_EXPORT(to_float16);
HWY_EXPORT(from_bfloat16);
HWY_EXPORT(from_float16);

void narrow(const float* from, void* to, std::size_t count, hocketDataType_t wire) {
  auto* const halves = static_cast<std::uint16_t*>(to);
  if (wire == hocketFloat16) {
    HWY_DYNAMIC_DISPATCH(to_float16)(from, halves, count);
  } else {
    HWY_DYNAMIC_DISPATCH(to_bfloat16)(from, halves, count);
  }
}

void widen(const void* from, float* to, std::size_t count, hocketDataType_t wire) {
  const auto* const halves = static_cast<const std::uint16_t*>(from);
  if (wire == hocketFloat16) {
    HWY_DYNAMIC_DISPATCH(from_float16)(halves, to, count);
  } else {
    HWY_DYNAMIC_DISPATCH(from_bfloat16)(halves, to, count);
  }
}

}  // namespace hocket::training
#endif
