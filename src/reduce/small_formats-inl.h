// Converts vectors of fp16, bf16 and fp8 to vectors of fp32 and back, by the steps of formats.h. A
// vector of the narrow type is a fraction of a register.
#if defined(HOCKET_REDUCE_SMALL_FORMATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HOCKET_REDUCE_SMALL_FORMATS_INL_H
#undef HOCKET_REDUCE_SMALL_FORMATS_INL_H
#else
#define HOCKET_REDUCE_SMALL_FORMATS_INL_H
#endif

#include "reduce/loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::internal::reduce {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// From AVX2 on, Highway requires the fp16 conversions of the processor (F16C). They round as
// formats.h does, but keep NaN payloads, which formats.h does not.
#undef HOCKET_REDUCE_HAS_F16
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
  } else {  // values that are too large, infinity and NaN all have codes of at least nan
    return hn::IfThenElse(hn::Gt(nan, code), hn::Or(code, sign), nan);
  }
}

/// How a format's bits, each in a 32-bit lane and zero-extended, become fp32 and back.
template <class Format>
struct SmallCodec {
  using Bits = typename Format::Bits;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, Ints<D> bits) {
    return decode<Format>(d, bits);
  }
  template <class D>
  static HWY_INLINE Ints<D> narrow(D d, hn::Vec<D> v) {
    return encode<Format>(d, v);
  }
};

struct Bfloat16Codec {
  using Bits = std::uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, Ints<D> bits) {
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  }
  template <class D>
  static HWY_INLINE Ints<D> narrow(D d, hn::Vec<D> v) {
    const hn::RebindToSigned<D> di;
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
    const auto nan = hn::BitCast(d, hn::Set(du, float_nan));
    const auto code = hn::IfThenElse(hn::IsNaN(v), nan, hn::BitCast(d, rounded));
    return hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, code)));
  }
};

/// Reads and writes by a codec. Four vectors' worth of elements are handled as vectors of 32-bit
/// words with two or four elements in each: lane k of the vectors of fp32 then comes from word k,
/// which saves moving elements across lanes, and stores are of whole registers.
template <class Codec>
struct Widened {
  using Wide = float;
  using Narrow = typename Codec::Bits;
  static constexpr bool widened = true;
  static constexpr int width = 8 * sizeof(Narrow);

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Narrow* from) {
    const hn::Rebind<Narrow, D> dn;
    return Codec::widen(d, hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(dn, from)));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store(D d, V v, Narrow* to, bool stream) {
    const hn::Rebind<Narrow, D> dn;
    put(dn, hn::DemoteTo(dn, Codec::narrow(d, v)), to, stream);
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void load4(D d, const Narrow* from, V& v0, V& v1, V& v2, V& v3) {
    const auto w0 = words(d, from);
    v0 = piece<0>(d, w0);
    v1 = piece<1>(d, w0);
    if constexpr (width == 16) {
      const auto w1 = words(d, from + 2 * hn::Lanes(d));
      v2 = piece<0>(d, w1);
      v3 = piece<1>(d, w1);
    } else {
      v2 = piece<2>(d, w0);
      v3 = piece<3>(d, w0);
    }
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store4(D d, V v0, V v1, V v2, V v3, Narrow* to, bool stream) {
    const hn::Repartition<Narrow, D> dn;  // a whole register
    const auto low = hn::Or(Codec::narrow(d, v0), hn::ShiftLeft<width>(Codec::narrow(d, v1)));
    const auto high = hn::Or(Codec::narrow(d, v2), hn::ShiftLeft<width>(Codec::narrow(d, v3)));
    if constexpr (width == 16) {
      put(dn, hn::BitCast(dn, low), to, stream);
      put(dn, hn::BitCast(dn, high), to + 2 * hn::Lanes(d), stream);
    } else {
      put(dn, hn::BitCast(dn, hn::Or(low, hn::ShiftLeft<16>(high))), to, stream);
    }
  }

 private:
  template <class D>
  static HWY_INLINE Ints<D> words(D, const Narrow* from) {
    const hn::Repartition<Narrow, D> dn;
    return hn::BitCast(hn::RebindToSigned<D>(), hn::LoadU(dn, from));
  }
  template <int kIndex, class D>
  static HWY_INLINE hn::Vec<D> piece(D d, Ints<D> words) {
    const hn::RebindToSigned<D> di;
    const hn::RebindToUnsigned<D> du;
    auto bits = hn::BitCast(di, hn::ShiftRight<kIndex * width>(hn::BitCast(du, words)));
    if constexpr ((kIndex + 1) * width < 32) {
      bits = hn::And(bits, hn::Set(di, static_cast<std::int32_t>((1u << width) - 1)));
    }
    return Codec::widen(d, bits);
  }
};

#if HOCKET_REDUCE_HAS_F16
struct Float16Element {
  using Wide = float;
  using Narrow = std::uint16_t;
  static constexpr bool widened = true;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Narrow* from) {
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(hn::Rebind<Narrow, D>(), from)));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store(D d, V v, Narrow* to, bool stream) {
    const hn::Rebind<hwy::float16_t, D> df16;
    const hn::Rebind<Narrow, D> dn;
    put(dn, hn::BitCast(dn, hn::DemoteTo(df16, canonical(d, v))), to, stream);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void load4(D d, const Narrow* from, V& v0, V& v1, V& v2, V& v3) {
    load4_in_order<Float16Element>(d, from, v0, v1, v2, v3);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store4(D d, V v0, V v1, V v2, V v3, Narrow* to, bool stream) {
    store4_in_order<Float16Element>(d, v0, v1, v2, v3, to, stream);
  }
};
#else
using Float16Element = Widened<SmallCodec<Float16>>;
#endif

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace hocket::internal::reduce
HWY_AFTER_NAMESPACE();

#endif
