// The vector loops; the files that include this header compile them once per instruction set. A
// kernel consists of an Element, which reads and writes a dtype as vectors of its wide type, and an
// operator.
#if defined(HOCKET_REDUCE_LOOPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HOCKET_REDUCE_LOOPS_INL_H
#undef HOCKET_REDUCE_LOOPS_INL_H
#else
#define HOCKET_REDUCE_LOOPS_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "reduce/formats.h"
#include "reduce/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::internal::reduce {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
HWY_INLINE const T* element(const void* base, std::size_t i) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + i * sizeof(T));
}
template <class T>
HWY_INLINE T* element(void* base, std::size_t i) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + i * sizeof(T));
}

/// Gives every NaN of arithmetic the same bit pattern. The payload that an addition keeps depends
/// on the processor and on the order in which the compiler puts the operands.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V canonical(D d, V v) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, float>) {
    return hn::IfThenElse(hn::IsNaN(v),
                          hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), float_nan)), v);
  } else if constexpr (std::is_same_v<T, double>) {
    return hn::IfThenElse(hn::IsNaN(v),
                          hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), double_nan)), v);
  } else {
    return v;
  }
}

/// Writes with a non-temporal store if asked for and possible.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void put(D d, V v, hn::TFromD<D>* to, bool stream) {
  // Highway's Stream of less than 16 bytes writes 16.
  if constexpr (HWY_MAX_BYTES >= 16 && hn::MaxLanes(d) * sizeof(hn::TFromD<D>) >= 16) {
    if (stream) {
      hn::Stream(v, d, to);
      return;
    }
  }
  hn::StoreU(v, d, to);
}

template <class Element, class D, class V = hn::Vec<D>>
HWY_INLINE void load4_in_order(D d, const typename Element::Narrow* from, V& v0, V& v1, V& v2,
                               V& v3) {
  const std::size_t lanes = hn::Lanes(d);
  v0 = Element::load(d, from);
  v1 = Element::load(d, from + lanes);
  v2 = Element::load(d, from + 2 * lanes);
  v3 = Element::load(d, from + 3 * lanes);
}

template <class Element, class D, class V = hn::Vec<D>>
HWY_INLINE void store4_in_order(D d, V v0, V v1, V v2, V v3, typename Element::Narrow* to,
                                bool stream) {
  const std::size_t lanes = hn::Lanes(d);
  Element::store(d, v0, to, stream);
  Element::store(d, v1, to + lanes, stream);
  Element::store(d, v2, to + 2 * lanes, stream);
  Element::store(d, v3, to + 3 * lanes, stream);
}

/// dtypes that are folded in their own type. load4 and store4 handle four vectors' worth of
/// elements, in an order that the Element chooses, the same in both.
template <class T>
struct Plain {
  using Wide = T;
  using Narrow = T;
  static constexpr bool widened = false;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store(D d, V v, T* to, bool stream) {
    put(d, canonical(d, v), to, stream);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void load4(D d, const T* from, V& v0, V& v1, V& v2, V& v3) {
    load4_in_order<Plain>(d, from, v0, v1, v2, v3);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void store4(D d, V v0, V v1, V v2, V v3, T* to, bool stream) {
    store4_in_order<Plain>(d, v0, v1, v2, v3, to, stream);
  }
};

struct Sum {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

struct Prod {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (sizeof(hn::TFromD<D>) == 1) {  // by 16 bits: the even bytes, then the odd ones
      const hn::Repartition<std::uint16_t, D> d16;
      const auto a16 = hn::BitCast(d16, a);
      const auto b16 = hn::BitCast(d16, b);
      const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, std::uint16_t{0xff}));
      const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16));
      return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
    } else {
      return hn::Mul(a, b);
    }
  }
};

struct BitAnd {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Xor(a, b);
  }
};

/// Minimum or maximum of a and b. For floating-point types it is NaN if a or b is NaN, and +0 is
/// greater than -0; in both cases the instructions of processors give different results. Equal
/// numbers other than zeros have equal bits.
template <bool kMax>
struct Extreme {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b) {
    const V best = kMax ? hn::Max(a, b) : hn::Min(a, b);
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      const V same = kMax ? hn::And(a, b) : hn::Or(a, b);
      const V number = hn::IfThenElse(hn::Eq(a, b), same, best);
      const V nan_or_a = hn::IfThenElse(hn::IsNaN(b), b, a);
      return hn::IfThenElse(hn::IsNaN(nan_or_a), nan_or_a, number);
    } else {
      (void)d;
      return best;
    }
  }
};

/// kScaled: with Fold::scalars.
template <class Element, class Operator, bool kScaled = false>
class Loop {
  using Wide = typename Element::Wide;
  using Narrow = typename Element::Narrow;
  using D = hn::ScalableTag<Wide>;
  using V = hn::Vec<D>;
  /// 16 bytes, for elements after the last whole vector.
  using Small = hn::CappedTag<Wide, 16 / sizeof(Wide)>;

 public:
  static void run(const Fold& fold, std::size_t begin, std::size_t end) {
    const std::size_t lanes = hn::Lanes(D());
    const std::size_t small_lanes = hn::Lanes(Small());
    std::size_t i = begin;
    if (end - begin >= small_lanes) {
      Loop loop(fold);
      if (loop.near_ < fold.dst_count) i = loop.align(begin, end);
      if (loop.mixed_) {
        i = loop.template any_sources<true>(i, end);
      } else if (fold.src_count == 2 && !kScaled) {
        i = loop.two_sources(i, end);
      } else {
        i = loop.template any_sources<false>(i, end);
      }
      for (; i + lanes <= end; i += lanes) loop.one_vector(D(), i);
      if (small_lanes < lanes) {
        for (; i + small_lanes <= end; i += small_lanes) loop.one_vector(Small(), i);
      }
      if (loop.stream_) hwy::FlushStream();
    }
    if (i < end) tail(fold, i, end);
  }

 private:
  static void tail(const Fold& f, std::size_t begin, std::size_t end) {
    scalar_kernels[static_cast<int>(f.dtype)].ops[kernel_of(f)](f, begin, end);
  }

  explicit Loop(const Fold& fold)
      : f_(fold),
        mixed_(has_wide_operand(fold)),
        wide_dst_(Element::widened && fold.wide_dst),
        near_(near_count(fold)),
        division_(std::is_floating_point_v<Wide> && divides(fold)) {}

  static bool has_wide_operand(const Fold& fold) {
    if constexpr (!Element::widened) return false;
    for (int s = 0; s < fold.src_count; ++s) {
      if (fold.srcs[s].wide) return true;
    }
    return fold.wide_dst;
  }

  std::size_t dst_element_bytes() const { return wide_dst_ ? sizeof(Wide) : sizeof(Narrow); }

  /// Folds the elements before the first element that is aligned in the first non-temporal
  /// destination.
  std::size_t align(std::size_t begin, std::size_t end) {
    const std::size_t size = dst_element_bytes();
    const std::size_t vector = hn::Lanes(D()) * sizeof(Wide);
    const auto address = reinterpret_cast<std::uintptr_t>(f_.dsts[near_]) + begin * size;
    const std::size_t past = address % vector;
    if (past % size != 0) return begin;  // never aligned
    const std::size_t head = past == 0 ? 0 : (vector - past) / size;
    if (head >= end - begin) return begin;
    if (head != 0) tail(f_, begin, begin + head);
    stream_ = true;
    return begin + head;
  }

  /// True if stores to this destination are non-temporal from element i on.
  HWY_INLINE bool streams(int dst, std::size_t i) const {
    if (!stream_ || dst < near_) return false;
    const auto address = reinterpret_cast<std::uintptr_t>(f_.dsts[dst]) + i * dst_element_bytes();
    return address % (hn::Lanes(D()) * sizeof(Wide)) == 0;
  }

  template <bool kMixed>
  static HWY_INLINE void load4(const FoldSource& source, std::size_t i, V& v0, V& v1, V& v2,
                               V& v3) {
    const D d;
    if constexpr (!kMixed) {
      Element::load4(d, element<Narrow>(source.data, i), v0, v1, v2, v3);
    } else if (source.wide) {
      load4_in_order<Plain<Wide>>(d, element<Wide>(source.data, i), v0, v1, v2, v3);
    } else {
      load4_in_order<Element>(d, element<Narrow>(source.data, i), v0, v1, v2, v3);
    }
  }

  /// The operand, multiplied by its scalar if it has one.
  template <class AnyD, class AnyV = hn::Vec<AnyD>>
  HWY_INLINE AnyV scaled(AnyD d, AnyV v, int s) const {
    if constexpr (kScaled) {
      if (!f_.srcs[s].wide) {
        Wide scalar;
        hwy::CopyBytes<sizeof scalar>(f_.scalars + s, &scalar);
        return Prod::apply(d, v, hn::Set(d, scalar));
      }
    }
    return v;
  }
  template <bool kMixed>
  HWY_INLINE void operand4(int s, std::size_t i, V& v0, V& v1, V& v2, V& v3) const {
    const D d;
    load4<kMixed>(f_.srcs[s], i, v0, v1, v2, v3);
    v0 = scaled(d, v0, s);
    v1 = scaled(d, v1, s);
    v2 = scaled(d, v2, s);
    v3 = scaled(d, v3, s);
  }

  template <bool kMixed>
  HWY_INLINE void store4(int dst, std::size_t i, V v0, V v1, V v2, V v3) const {
    const D d;
    void* const to = f_.dsts[dst];
    const bool stream = streams(dst, i);
    if constexpr (!kMixed) {
      Element::store4(d, v0, v1, v2, v3, element<Narrow>(to, i), stream);
    } else if (wide_dst_) {
      store4_in_order<Plain<Wide>>(d, v0, v1, v2, v3, element<Wide>(to, i), stream);
    } else {
      store4_in_order<Element>(d, v0, v1, v2, v3, element<Narrow>(to, i), stream);
    }
  }

  static HWY_INLINE void apply4(V& v0, V& v1, V& v2, V& v3, V w0, V w1, V w2, V w3) {
    const D d;
    v0 = Operator::apply(d, v0, w0);
    v1 = Operator::apply(d, v1, w1);
    v2 = Operator::apply(d, v2, w2);
    v3 = Operator::apply(d, v3, w3);
  }

  template <class AnyD, class AnyV = hn::Vec<AnyD>>
  HWY_INLINE AnyV finish(AnyD d, AnyV v) const {
    if constexpr (std::is_floating_point_v<Wide>) {
      if (division_) return hn::Div(v, hn::Set(d, static_cast<Wide>(f_.divisor)));
    }
    return v;
  }
  HWY_INLINE void finish4(V& v0, V& v1, V& v2, V& v3) const {
    const D d;
    v0 = finish(d, v0);
    v1 = finish(d, v1);
    v2 = finish(d, v2);
    v3 = finish(d, v3);
  }

  template <class AnyD>
  HWY_INLINE hn::Vec<AnyD> operand(AnyD d, int s, std::size_t i) const {
    const FoldSource& source = f_.srcs[s];
    if constexpr (Element::widened) {
      if (source.wide) return hn::LoadU(d, element<Wide>(source.data, i));
    }
    return scaled(d, Element::load(d, element<Narrow>(source.data, i)), s);
  }

  template <class AnyD>
  HWY_INLINE void one_vector(AnyD d, std::size_t i) const {
    auto v = operand(d, 0, i);
    for (int s = 1; s < f_.src_count; ++s) v = Operator::apply(d, v, operand(d, s, i));
    v = finish(d, v);
    for (int k = 0; k < f_.dst_count; ++k) {
      if (Element::widened && wide_dst_) {
        Plain<Wide>::store(d, v, element<Wide>(f_.dsts[k], i), false);
      } else {
        Element::store(d, v, element<Narrow>(f_.dsts[k], i), false);
      }
    }
  }

  /// Folds four vectors at a time; returns the first element that is left.
  template <bool kMixed>
  std::size_t any_sources(std::size_t i, std::size_t end) const {
    const std::size_t block = 4 * hn::Lanes(D());
    for (; i + block <= end; i += block) {
      V v0, v1, v2, v3;
      operand4<kMixed>(0, i, v0, v1, v2, v3);
      for (int s = 1; s < f_.src_count; ++s) {
        V w0, w1, w2, w3;
        operand4<kMixed>(s, i, w0, w1, w2, w3);
        apply4(v0, v1, v2, v3, w0, w1, w2, w3);
      }
      finish4(v0, v1, v2, v3);
      for (int k = 0; k < f_.dst_count; ++k) store4<kMixed>(k, i, v0, v1, v2, v3);
    }
    return i;
  }

  /// The most common fold, without reading the list of sources for each block.
  std::size_t two_sources(std::size_t i, std::size_t end) const {
    const std::size_t block = 4 * hn::Lanes(D());
    const FoldSource a = f_.srcs[0];
    const FoldSource b = f_.srcs[1];
    const int dst_count = f_.dst_count;
    for (; i + block <= end; i += block) {
      V v0, v1, v2, v3;
      V w0, w1, w2, w3;
      load4<false>(a, i, v0, v1, v2, v3);
      load4<false>(b, i, w0, w1, w2, w3);
      apply4(v0, v1, v2, v3, w0, w1, w2, w3);
      finish4(v0, v1, v2, v3);
      for (int k = 0; k < dst_count; ++k) store4<false>(k, i, v0, v1, v2, v3);
    }
    return i;
  }

  const Fold& f_;
  const bool mixed_;  // an operand is wide although the dtype is narrower
  const bool wide_dst_;
  const int near_;  // the destinations before this one get ordinary stores
  const bool division_;
  bool stream_ = false;
};

template <class Element, class Arithmetic = Element>
constexpr KernelRow row() {
  KernelRow row = {{Loop<Arithmetic, Sum>::run, Loop<Arithmetic, Prod>::run,
                    Loop<Element, Extreme<true>>::run, Loop<Element, Extreme<false>>::run}};
  row.ops[scaled_sum] = Loop<Arithmetic, Sum, true>::run;
  return row;
}

/// Arithmetic and bitwise operators of unsigned elements serve signed ones too.
template <class Element, class Unsigned>
constexpr KernelRow integer_row() {
  KernelRow both = row<Element, Unsigned>();
  both.ops[kernel_op(Op::bit_and)] = Loop<Unsigned, BitAnd>::run;
  both.ops[kernel_op(Op::bit_or)] = Loop<Unsigned, BitOr>::run;
  both.ops[kernel_op(Op::bit_xor)] = Loop<Unsigned, BitXor>::run;
  return both;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace hocket::internal::reduce
HWY_AFTER_NAMESPACE();

#endif
