#include "training/range_math.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/range_math.cc"
#include "hwy/foreach_target.h"
#include "training/small_floats-inl.h"

// Element i of a run belongs to lane i % 16 of a sum, whatever the length of the vectors.
#ifndef HOCKET_TRAINING_SUM_LANES
#define HOCKET_TRAINING_SUM_LANES
namespace hocket::training {
constexpr std::size_t sum_lanes = 16;
}  // namespace hocket::training
#endif

HWY_BEFORE_NAMESPACE();
namespace hocket::training {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// A finite number times 0 is 0, another number times 0 is NaN: *check is NaN if any element is not
// finite, else 0.

template <class E>
std::size_t scale_elements(void* data, std::size_t count, double factor, double* check) {
  using T = typename E::Wide;
  const hn::ScalableTag<T> d;
  const auto by = hn::Set(d, static_cast<T>(factor));
  const auto zero = hn::Zero(d);
  auto sum = zero;
  auto* const elements = static_cast<typename E::Narrow*>(data);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = E::load(d, elements + i);
    sum = hn::Add(sum, hn::Mul(value, zero));
    E::store(d, hn::Mul(value, by), elements + i);
  }
  *check = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  return i;
}

/// Four sums, so that reads from the cache do not wait for additions.
template <class E>
std::size_t check_elements(const void* data, std::size_t count, double* check) {
  const hn::ScalableTag<typename E::Wide> d;
  const auto zero = hn::Zero(d);
  const auto* const elements = static_cast<const typename E::Narrow*>(data);
  const std::size_t lanes = hn::Lanes(d);
  auto a = zero, b = zero, c = zero, e = zero;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, hn::Mul(E::load(d, elements + i), zero));
    b = hn::Add(b, hn::Mul(E::load(d, elements + i + lanes), zero));
    c = hn::Add(c, hn::Mul(E::load(d, elements + i + 2 * lanes), zero));
    e = hn::Add(e, hn::Mul(E::load(d, elements + i + 3 * lanes), zero));
  }
  for (; i + lanes <= count; i += lanes) {
    a = hn::Add(a, hn::Mul(E::load(d, elements + i), zero));
  }
  const auto sum = hn::Add(hn::Add(a, b), hn::Add(c, e));
  *check = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  return i;
}

template <class E>
std::size_t narrow_elements(const float* from, void* to, std::size_t count) {
  const hn::ScalableTag<float> d;
  auto* const halves = static_cast<typename E::Narrow*>(to);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) E::store(d, hn::LoadU(d, from + i), halves + i);
  return i;
}

template <class E>
std::size_t widen_elements(const void* from, float* to, std::size_t count) {
  const hn::ScalableTag<float> d;
  const auto* const halves = static_cast<const typename E::Narrow*>(from);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(E::load(d, halves + i), d, to + i);
  return i;
}

template <class E>
std::size_t add_elements(void* to, const void* from, std::size_t count) {
  const hn::ScalableTag<typename E::Wide> d;
  auto* const sums = static_cast<typename E::Narrow*>(to);
  const auto* const terms = static_cast<const typename E::Narrow*>(from);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    E::store(d, hn::Add(E::load(d, sums + i), E::load(d, terms + i)), sums + i);
  }
  return i;
}

/// A vector of float64.
template <class E, class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const typename E::Narrow* from) {
  if constexpr (std::is_same_v<typename E::Wide, double>) {
    return E::load(d, from);
  } else {
    const hn::Rebind<float, D> narrow;
    return hn::PromoteTo(d, E::load(narrow, from));
  }
}

template <class E>
std::size_t square_elements(const void* data, std::size_t count, double* sums) {
  const hn::CappedTag<double, sum_lanes> d;
  const auto* const elements = static_cast<const typename E::Narrow*>(data);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + sum_lanes <= count; i += sum_lanes) {
    for (std::size_t lane = 0; lane < sum_lanes; lane += lanes) {
      const auto value = load_wide<E>(d, elements + i + lane);
      hn::StoreU(hn::Add(hn::LoadU(d, sums + lane), hn::Mul(value, value)), d, sums + lane);
    }
  }
  return i;
}

template <class E>
std::size_t largest_element(const void* data, std::size_t count, double* largest) {
  using T = typename E::Wide;
  const hn::ScalableTag<T> d;
  const auto* const elements = static_cast<const typename E::Narrow*>(data);
  const std::size_t lanes = hn::Lanes(d);
  auto most = hn::Zero(d);
  auto unordered = hn::Zero(d);  // becomes NaN with the first NaN: x - x is 0 or NaN
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::Abs(E::load(d, elements + i));
    most = hn::Max(most, value);
    unordered = hn::IfThenElse(hn::IsNaN(value), value, unordered);
  }
  *largest = static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, most)));
  if (!hn::AllFalse(d, hn::IsNaN(unordered))) {
    *largest = std::numeric_limits<double>::quiet_NaN();
  }
  return i;
}

using Half = Small<Float16Bits>;
using Brain = Small<Bfloat16Bits>;

/// Calls action.template operator()<Element>().
template <class Action>
std::size_t with_element(hocketDataType_t dtype, Action action) {
  switch (dtype) {
    case hocketFloat64:
      return action.template operator()<Plain<double>>();
    case hocketFloat32:
      return action.template operator()<Plain<float>>();
    case hocketFloat16:
      return action.template operator()<Half>();
    default:
      return action.template operator()<Brain>();
  }
}

std::size_t scale_vectors(void* data, std::size_t count, hocketDataType_t dtype, double factor,
                          double* check) {
  return with_element(dtype,
                      [&]<class E>() { return scale_elements<E>(data, count, factor, check); });
}
std::size_t check_vectors(const void* data, std::size_t count, hocketDataType_t dtype,
                          double* check) {
  return with_element(dtype, [&]<class E>() { return check_elements<E>(data, count, check); });
}
std::size_t narrow_vectors(const float* from, void* to, std::size_t count, hocketDataType_t dtype) {
  return dtype == hocketFloat16 ? narrow_elements<Half>(from, to, count)
                                : narrow_elements<Brain>(from, to, count);
}
std::size_t widen_vectors(const void* from, float* to, std::size_t count, hocketDataType_t dtype) {
  return dtype == hocketFloat16 ? widen_elements<Half>(from, to, count)
                                : widen_elements<Brain>(from, to, count);
}
std::size_t add_vectors(void* to, const void* from, std::size_t count, hocketDataType_t dtype) {
  return with_element(dtype, [&]<class E>() { return add_elements<E>(to, from, count); });
}
std::size_t square_vectors(const void* data, std::size_t count, hocketDataType_t dtype,
                           double* sums) {
  return with_element(dtype, [&]<class E>() { return square_elements<E>(data, count, sums); });
}
std::size_t largest_vectors(const void* data, std::size_t count, hocketDataType_t dtype,
                            double* largest) {
  return with_element(dtype, [&]<class E>() { return largest_element<E>(data, count, largest); });
}

#else

std::size_t scale_vectors(void*, std::size_t, hocketDataType_t, double, double*) { return 0; }
std::size_t check_vectors(const void*, std::size_t, hocketDataType_t, double*) { return 0; }
std::size_t narrow_vectors(const float*, void*, std::size_t, hocketDataType_t) { return 0; }
std::size_t widen_vectors(const void*, float*, std::size_t, hocketDataType_t) { return 0; }
std::size_t add_vectors(void*, const void*, std::size_t, hocketDataType_t) { return 0; }
std::size_t square_vectors(const void*, std::size_t, hocketDataType_t, double*) { return 0; }
std::size_t largest_vectors(const void*, std::size_t, hocketDataType_t, double*) { return 0; }

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace hocket::training
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::training {
HWY_EXPORT(scale_vectors);
HWY_EXPORT(check_vectors);
HWY_EXPORT(narrow_vectors);
HWY_EXPORT(widen_vectors);
HWY_EXPORT(add_vectors);
HWY_EXPORT(square_vectors);
HWY_EXPORT(largest_vectors);

namespace {

/// One element as its wide type, in plain code: the last elements of a run.
template <class T, class Format>
struct Access {
  using Narrow = std::conditional_t<std::is_void_v<Format>, T, std::uint16_t>;
  static T load(const void* data, std::size_t i) {
    const Narrow element = static_cast<const Narrow*>(data)[i];
    if constexpr (std::is_void_v<Format>) {
      return element;
    } else {
      return Format::widen(element);
    }
  }
  static void store(void* data, std::size_t i, T value) {
    if constexpr (std::is_void_v<Format>) {
      static_cast<Narrow*>(data)[i] = value;
    } else {
      static_cast<Narrow*>(data)[i] = Format::narrow(value);
    }
  }
  static T factor(double value) { return static_cast<T>(value); }
};

template <class Action>
void with_access(hocketDataType_t dtype, Action action) {
  switch (dtype) {
    case hocketFloat64:
      return action(Access<double, void>());
    case hocketFloat32:
      return action(Access<float, void>());
    case hocketFloat16:
      return action(Access<float, small::Float16>());
    default:
      return action(Access<float, small::Bfloat16>());
  }
}

double sum_of_squares(const void* data, std::size_t count, hocketDataType_t dtype) {
  double sums[sum_lanes] = {};
  const std::size_t done = HWY_DYNAMIC_DISPATCH(square_vectors)(data, count, dtype, sums);
  with_access(dtype, [&](auto access) {
    for (std::size_t i = done; i < count; ++i) {
      const double value = access.load(data, i);
      sums[i % sum_lanes] += value * value;
    }
  });
  for (std::size_t half = sum_lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

double largest(const void* data, std::size_t count, hocketDataType_t dtype) {
  double most = 0;
  const std::size_t done = HWY_DYNAMIC_DISPATCH(largest_vectors)(data, count, dtype, &most);
  with_access(dtype, [&](auto access) {
    for (std::size_t i = done; i < count; ++i) {
      const double value = std::abs(static_cast<double>(access.load(data, i)));
      if (!(value <= most)) most = std::isnan(most) ? most : value;
    }
  });
  return most;
}

}  // namespace

bool scale(void* data, std::size_t count, hocketDataType_t dtype, double factor) {
  double check = 0;
  const std::size_t done = HWY_DYNAMIC_DISPATCH(scale_vectors)(data, count, dtype, factor, &check);
  with_access(dtype, [&](auto access) {
    for (std::size_t i = done; i < count; ++i) {
      const auto value = access.load(data, i);
      check += value * 0;
      access.store(data, i, value * access.factor(factor));
    }
  });
  return check == 0;
}

void add(void* to, const void* from, std::size_t count, hocketDataType_t dtype) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(add_vectors)(to, from, count, dtype);
  with_access(dtype, [&](auto access) {
    for (std::size_t i = done; i < count; ++i) {
      access.store(to, i, access.load(to, i) + access.load(from, i));
    }
  });
}

double sum_of_powers(const void* data, std::size_t count, hocketDataType_t dtype, double p) {
  if (p == 2) return sum_of_squares(data, count, dtype);
  if (std::isinf(p)) return largest(data, count, dtype);
  double sum = 0;
  with_access(dtype, [&](auto access) {
    for (std::size_t i = 0; i < count; ++i) {
      sum += std::pow(std::abs(static_cast<double>(access.load(data, i))), p);
    }
  });
  return sum;
}

bool all_finite(const void* data, std::size_t count, hocketDataType_t dtype) {
  double check = 0;
  const std::size_t done = HWY_DYNAMIC_DISPATCH(check_vectors)(data, count, dtype, &check);
  with_access(dtype, [&](auto access) {
    for (std::size_t i = done; i < count; ++i) check += access.load(data, i) * 0;
  });
  return check == 0;
}

void narrow(const float* from, void* to, std::size_t count, hocketDataType_t dtype) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(narrow_vectors)(from, to, count, dtype);
  auto* const halves = static_cast<std::uint16_t*>(to);
  for (std::size_t i = done; i < count; ++i) {
    halves[i] =
        dtype == hocketFloat16 ? small::Float16::narrow(from[i]) : small::Bfloat16::narrow(from[i]);
  }
}

void widen(const void* from, float* to, std::size_t count, hocketDataType_t dtype) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(widen_vectors)(from, to, count, dtype);
  const auto* const halves = static_cast<const std::uint16_t*>(from);
  for (std::size_t i = done; i < count; ++i) {
    to[i] = dtype == hocketFloat16 ? small::Float16::widen(halves[i])
                                   : small::Bfloat16::widen(halves[i]);
  }
}

}  // namespace hocket::training
#endif
