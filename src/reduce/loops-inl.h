// The vector loops, compiled once per instruction set by the files that include this. A kernel is
// an Element (how a dtype is read and written as vectors of its wide type) and an operator.
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
namespace hocket::reduce {
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

/// NaN from arithmetic has one bit pattern: which operand's payload an addition keeps is up to the
/// processor and to the order that the compiler gives the operands.
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

/// Writes past the caches where asked and possible.
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

/// dtypes that are folded in their own type.
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

/// Of the two, where they are floating point: NaN if one is NaN, and +0 above -0, both of which
/// processors leave open. Equal numbers have equal bits save for the zeros.
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

template <class Element, class Operator>
class Loop {
  using Wide = typename Element::Wide;
  using Narrow = typename Element::Narrow;
  using D = hn::ScalableTag<Wide>;
  using V = hn::Vec<D>;

 public:
  static void run(const Fold& fold, std::size_t begin, std::size_t end) {
    const std::size_t lanes = hn::Lanes(D());
    std::size_t i = begin;
    if (end - begin >= lanes) {
      Loop loop(fold);
      if (fold.non_temporal) i = loop.align(begin, end);
      i = fold.src_count == 2 ? loop.two_sources(i, end) : loop.any_sources(i, end);
      for (; i + lanes <= end; i += lanes) loop.one_vector(i);
      if (loop.stream_) hwy::FlushStream();
    }
    if (i < end) tail(fold, i, end);
  }

 private:
  static void tail(const Fold& f, std::size_t begin, std::size_t end) {
    scalar_kernels[static_cast<int>(f.dtype)].ops[kernel_op(f.op)](f, begin, end);
  }

  explicit Loop(const Fold& fold)
      : f_(fold),
        wide_dst_(Element::widened && fold.wide_dst),
        division_(std::is_floating_point_v<Wide> && divides(fold)) {}

  /// Folds the elements before the first at which the first destination is aligned for streaming.
  std::size_t align(std::size_t begin, std::size_t end) {
    const std::size_t size = wide_dst_ ? sizeof(Wide) : sizeof(Narrow);
    const std::size_t vector = hn::Lanes(D()) * size;
    const auto address = reinterpret_cast<std::uintptr_t>(f_.dsts[0]) + begin * size;
    const std::size_t past = address % vector;
    if (past % size != 0) return begin;  // never aligned
    const std::size_t head = past == 0 ? 0 : (vector - past) / size;
    if (head >= end - begin) return begin;
    if (head != 0) tail(f_, begin, begin + head);
    stream_ = true;
    return begin + head;
  }

  static HWY_INLINE V load(const FoldSource& source, std::size_t i) {
    const D d;
    if constexpr (Element::widened) {
      if (source.wide) return hn::LoadU(d, element<Wide>(source.data, i));
    }
    return Element::load(d, element<Narrow>(source.data, i));
  }

  HWY_INLINE V finish(V v) const {
    if constexpr (std::is_floating_point_v<Wide>) {
      if (division_) return hn::Div(v, hn::Set(D(), static_cast<Wide>(f_.divisor)));
    }
    return v;
  }

  HWY_INLINE void store1(void* to, std::size_t i, V v, bool stream) const {
    const D d;
    if constexpr (Element::widened) {
      if (wide_dst_) {
        put(d, canonical(d, v), element<Wide>(to, i), stream);
        return;
      }
    }
    Element::store(d, v, element<Narrow>(to, i), stream);
  }

  /// True where the stores to this destination, from element i on, may stream.
  HWY_INLINE bool streams(const void* to, std::size_t i) const {
    if (!stream_) return false;
    const std::size_t size = wide_dst_ ? sizeof(Wide) : sizeof(Narrow);
    return (reinterpret_cast<std::uintptr_t>(to) + i * size) % (hn::Lanes(D()) * size) == 0;
  }

  HWY_INLINE void store4(void* to, std::size_t i, V v0, V v1, V v2, V v3) const {
    const std::size_t lanes = hn::Lanes(D());
    const bool stream = streams(to, i);
    store1(to, i, v0, stream);
    store1(to, i + lanes, v1, stream);
    store1(to, i + 2 * lanes, v2, stream);
    store1(to, i + 3 * lanes, v3, stream);
  }

  void one_vector(std::size_t i) const {
    V v = load(f_.srcs[0], i);
    for (int s = 1; s < f_.src_count; ++s) v = Operator::apply(D(), v, load(f_.srcs[s], i));
    v = finish(v);
    for (int k = 0; k < f_.dst_count; ++k) store1(f_.dsts[k], i, v, streams(f_.dsts[k], i));
  }

  /// Four vectors at a time; returns where fewer are left.
  std::size_t any_sources(std::size_t i, std::size_t end) const {
    const D d;
    const std::size_t lanes = hn::Lanes(d);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      V v0 = load(f_.srcs[0], i);
      V v1 = load(f_.srcs[0], i + lanes);
      V v2 = load(f_.srcs[0], i + 2 * lanes);
      V v3 = load(f_.srcs[0], i + 3 * lanes);
      for (int s = 1; s < f_.src_count; ++s) {
        const FoldSource& source = f_.srcs[s];
        v0 = Operator::apply(d, v0, load(source, i));
        v1 = Operator::apply(d, v1, load(source, i + lanes));
        v2 = Operator::apply(d, v2, load(source, i + 2 * lanes));
        v3 = Operator::apply(d, v3, load(source, i + 3 * lanes));
      }
      v0 = finish(v0);
      v1 = finish(v1);
      v2 = finish(v2);
      v3 = finish(v3);
      for (int k = 0; k < f_.dst_count; ++k) store4(f_.dsts[k], i, v0, v1, v2, v3);
    }
    return i;
  }

  /// The commonest fold, without a look into the list of sources per block.
  std::size_t two_sources(std::size_t i, std::size_t end) const {
    const D d;
    const std::size_t lanes = hn::Lanes(d);
    const FoldSource a = f_.srcs[0];
    const FoldSource b = f_.srcs[1];
    const int dst_count = f_.dst_count;
    void* const first = f_.dsts[0];
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      V v0 = Operator::apply(d, load(a, i), load(b, i));
      V v1 = Operator::apply(d, load(a, i + lanes), load(b, i + lanes));
      V v2 = Operator::apply(d, load(a, i + 2 * lanes), load(b, i + 2 * lanes));
      V v3 = Operator::apply(d, load(a, i + 3 * lanes), load(b, i + 3 * lanes));
      v0 = finish(v0);
      v1 = finish(v1);
      v2 = finish(v2);
      v3 = finish(v3);
      store4(first, i, v0, v1, v2, v3);
      for (int k = 1; k < dst_count; ++k) store4(f_.dsts[k], i, v0, v1, v2, v3);
    }
    return i;
  }

  const Fold& f_;
  const bool wide_dst_;
  const bool division_;
  bool stream_ = false;
};

template <class Element, class Arithmetic = Element>
constexpr KernelRow row() {
  return {{Loop<Arithmetic, Sum>::run, Loop<Arithmetic, Prod>::run,
           Loop<Element, Extreme<true>>::run, Loop<Element, Extreme<false>>::run}};
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace hocket::reduce
HWY_AFTER_NAMESPACE();

#endif
