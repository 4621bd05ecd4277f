// fp16, bf16 and fp8 as vectors of fp32 and back: formats.h, a vector at a time. A vector of the
// narrow type is a fraction of a register.
#if defined(HOCKET_REDUCE_SMALL_FORMATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HOCKET_REDUCE_SMALL_FORMATS_INL_H
#undef HOCKET_REDUCE_SMALL_FORMATS_INL_H
#else
#define HOCKET_REDUCE_SMALL_FORMATS_INL_H
#endif

#include "reduce/loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::reduce {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// From AVX2 on, Highway requires the processor's own fp16 conversions (F16C), which round as we
// do. They keep NaN payloads, which we don't.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define HOCKET_REDUCE_HAS_F16 1
#else
#define HOCKET_REDUCE_HAS_F16 0
#endif

template <class D>
using Ints = hn::Vec<hn::RebindToSigned<D>>;

template <class Format, class D>
HWY_INLINE hn::Vec<D> decode(D d, Ints<D> bits) {
  const hn::RebindToSigned<D> di;
  const auto code = hn::And(bits, hn::Set(di, static_cast<std::int32_t>(Format::magnitude)));
  const auto sign = hn::ShiftLeft<32 - Format::width>(hn::Xor(bits, code));
  const auto rebias = hn::Set(di, static_cast<std::int32_t>(Format::rebias));
  const auto unit = hn::BitCast(d, hn::Set(di, static_cast<std::int32_t>(Format::subnormal_unit)));
  auto wide = hn::Add(hn::ShiftLeft<Format::shift>(code), rebias);
  wide = hn::IfThenElse(hn::Lt(code, hn::Set(di, 1 << Format::mantissa)),
                        hn::BitCast(di, hn::Mul(hn::ConvertTo(d, code), unit)), wide);
  if constexpr (Format::has_infinity) {
    const auto last = hn::Set(di, static_cast<std::int32_t>(Format::infinity) - 1);
    wide = hn::Add(wide, hn::IfThenElseZero(hn::Gt(code, last), rebias));
  } else {
    const auto nan = hn::Set(di, static_cast<std::int32_t>(Format::nan));
    wide =
        hn::IfThenElse(hn::Eq(code, nan), hn::Set(di, static_cast<std::int32_t>(float_nan)), wide);
  }
  return hn::BitCast(d, hn::Or(wide, sign));
}

template <class Format, class D>
HWY_INLINE Ints<D> encode(D d, hn::Vec<D> v) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;
  const auto set = [di](std::uint32_t bits) {
    return hn::Set(di, static_cast<std::int32_t>(bits));
  };
  const auto bits = hn::BitCast(di, v);
  const auto magnitude = hn::And(bits, set(0x7fffffff));
  const auto sign = hn::BitCast(
      di, hn::ShiftRight<32 - Format::width>(hn::BitCast(du, hn::Xor(bits, magnitude))));
  const auto bounded = hn::Min(magnitude, set(Format::ceiling));
  const auto rounder = set(Format::subnormal_rounder);
  const auto subnormal =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, bounded), hn::BitCast(d, rounder))), rounder);
  const auto odd = hn::And(hn::ShiftRight<Format::shift>(bounded), set(1));
  const auto half_below = hn::Sub(bounded, set(Format::rebias - ((1u << (Format::shift - 1)) - 1)));
  const auto normal = hn::ShiftRight<Format::shift>(hn::Add(half_below, odd));
  const auto code =
      hn::IfThenElse(hn::Lt(bounded, set(Format::smallest_normal)), subnormal, normal);
  const auto nan = set(Format::nan);
  if constexpr (Format::has_infinity) {
    return hn::IfThenElse(hn::Gt(magnitude, set(float_infinity)), nan, hn::Or(code, sign));
  } else {  // what is too large, infinity and NaN have all become codes from nan on
    return hn::IfThenElse(hn::Gt(nan, code), hn::Or(code, sign), nan);
  }
}

/// The common part: reads and writes narrow elements by their bits as 32-bit integers.
template <class Format, class Codec>
struct Widened {
  using Wide = float;
  using Narrow = typename Format::Bits;
  static constexpr bool widened = true;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Narrow* from) {
    return Codec::decode(d, hn::LoadU(hn::Rebind<Narrow, D>(), from));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store(D d, V v, Narrow* to, bool stream) {
    put(hn::Rebind<Narrow, D>(), Codec::encode(d, v), to, stream);
  }
};

template <class Format>
struct IntegerCodec {
  template <class D, class D16 = hn::Rebind<typename Format::Bits, D>>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<D16> bits) {
    return HWY_NAMESPACE::decode<Format>(d, hn::PromoteTo(hn::RebindToSigned<D>(), bits));
  }
  template <class D, class D16 = hn::Rebind<typename Format::Bits, D>>
  static HWY_INLINE hn::Vec<D16> encode(D d, hn::Vec<D> v) {
    return hn::DemoteTo(D16(), HWY_NAMESPACE::encode<Format>(d, v));
  }
};

struct Bfloat16Codec {
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::Rebind<std::uint16_t, D>> bits) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToSigned<D>(), bits)));
  }
  template <class D, class D16 = hn::Rebind<std::uint16_t, D>>
  static HWY_INLINE hn::Vec<D16> encode(D d, hn::Vec<D> v) {
    const hn::RebindToSigned<D> di;
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
    const auto nan = hn::BitCast(d, hn::Set(du, float_nan));
    const auto code = hn::BitCast(du, hn::IfThenElse(hn::IsNaN(v), nan, hn::BitCast(d, rounded)));
    return hn::DemoteTo(D16(), hn::BitCast(di, hn::ShiftRight<16>(code)));
  }
};

#if HOCKET_REDUCE_HAS_F16
struct Float16Codec {
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::Rebind<std::uint16_t, D>> bits) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  }
  template <class D, class D16 = hn::Rebind<std::uint16_t, D>>
  static HWY_INLINE hn::Vec<D16> encode(D d, hn::Vec<D> v) {
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::BitCast(D16(), hn::DemoteTo(df16, canonical(d, v)));
  }
};

/// e5m2 is the upper half of an fp16.
struct E5m2Codec {
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::Rebind<std::uint8_t, D>> bits) {
    const hn::Rebind<std::uint16_t, D> d16;
    return Float16Codec::decode(d, hn::ShiftLeft<8>(hn::PromoteTo(d16, bits)));
  }
  template <class D, class D8 = hn::Rebind<std::uint8_t, D>>
  static HWY_INLINE hn::Vec<D8> encode(D d, hn::Vec<D> v) {  // via fp16 it would round twice
    return IntegerCodec<E5m2>::encode(d, v);
  }
};
#else
using Float16Codec = IntegerCodec<Float16>;
using E5m2Codec = IntegerCodec<E5m2>;
#endif

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace hocket::reduce
HWY_AFTER_NAMESPACE();

#endif
