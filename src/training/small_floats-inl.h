// small_floats.h for vectors: compiled once per instruction set. An Element reads and writes
// vectors of its wide type.
#if defined(HOCKET_TRAINING_SMALL_FLOATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HOCKET_TRAINING_SMALL_FLOATS_INL_H
#undef HOCKET_TRAINING_SMALL_FLOATS_INL_H
#else
#define HOCKET_TRAINING_SMALL_FLOATS_INL_H
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "training/small_floats.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::training {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
struct Plain {
  using Wide = T;
  using Narrow = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, T* to) {
    hn::StoreU(v, d, to);
  }
};

template <class D>
using Bits = hn::Vec<hn::RebindToUnsigned<D>>;

struct Bfloat16Bits {
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, Bits<D> bits) {
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  }
  template <class D>
  static HWY_INLINE Bits<D> narrow(D, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, 0x7fc0u), rounded);
  }
};

struct Float16Bits {
  using F = small::Float16;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, Bits<D> half) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;  // comparisons and conversions of signed lanes are cheaper
    const auto code = hn::And(half, hn::Set(du, 0x7fffu));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(half, code));
    const auto rebias = hn::Set(du, F::rebias);
    const auto plain = hn::Add(hn::ShiftLeft<13>(code), rebias);
    const auto subnormal =
        hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, code)), hn::Set(d, F::unit)));
    const auto signed_code = hn::BitCast(di, code);
    auto wide = hn::IfThenElse(hn::RebindMask(du, hn::Lt(signed_code, hn::Set(di, 0x400))),
                               subnormal, plain);
    wide = hn::IfThenElse(hn::RebindMask(du, hn::Gt(signed_code, hn::Set(di, 0x7bff))),
                          hn::Add(wide, rebias), wide);
    return hn::BitCast(d, hn::Or(wide, sign));
  }
  template <class D>
  static HWY_INLINE Bits<D> narrow(D d, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto set = [di](std::uint32_t bits) {
      return hn::Set(di, static_cast<std::int32_t>(bits));
    };
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto rounder = hn::Set(du, F::subnormal_rounder);
    const auto subnormal = hn::Sub(
        hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, rounder))), rounder);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xfffu - F::rebias))));
    const auto m = hn::BitCast(di, magnitude);
    auto code =
        hn::IfThenElse(hn::RebindMask(du, hn::Lt(m, set(F::smallest_normal))), subnormal, normal);
    code = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, set(F::too_large - 1))),
                          hn::Set(du, F::infinity), code);
    code = hn::Or(code, sign);
    return hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, set(0x7f800000u))), hn::Set(du, 0x7e00u),
                          code);
  }
};

template <class Format>
struct Small {
  using Wide = float;
  using Narrow = std::uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Narrow* from) {
    const hn::Rebind<Narrow, D> dn;
    return Format::widen(d, hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(dn, from)));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, Narrow* to) {
    const hn::Rebind<Narrow, D> dn;
    const hn::RebindToSigned<D> di;
    hn::StoreU(hn::DemoteTo(dn, hn::BitCast(di, Format::narrow(d, v))), dn, to);
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace hocket::training
HWY_AFTER_NAMESPACE();

#endif
