// Elements and operators in plain C++, one value at a time. They define the result that every
// kernel must give. The scalar reference and device kernels use them; HOCKET_HOST_DEVICE
// (base/device.h) lets a kernel call them.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/device.h"
#include "reduce/formats.h"

namespace hocket::internal::reduce {

using std::memcpy;
using std::signbit;

template <class T>
HOCKET_HOST_DEVICE T load_as(const void* base, std::size_t i) {
  T value;
  memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
HOCKET_HOST_DEVICE void store_as(void* base, std::size_t i, T value) {
  memcpy(static_cast<char*>(base) + i * sizeof(T), &value, sizeof(T));
}

template <class T>
HOCKET_HOST_DEVICE T canonical(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return value != value ? std::bit_cast<float>(float_nan) : value;
  } else if constexpr (std::is_same_v<T, double>) {
    return value != value ? std::bit_cast<double>(double_nan) : value;
  } else {
    return value;
  }
}

/// dtypes that are folded in their own type.
template <class T>
struct Plain {
  using Wide = T;
  static constexpr bool widened = false;
  HOCKET_HOST_DEVICE static T load(const void* base, std::size_t i) { return load_as<T>(base, i); }
  HOCKET_HOST_DEVICE static void store(void* base, std::size_t i, T value) {
    store_as<T>(base, i, value);
  }
};

/// dtypes that are folded in fp32.
template <class Format>
struct Widened {
  using Wide = float;
  static constexpr bool widened = true;
  HOCKET_HOST_DEVICE static float load(const void* base, std::size_t i) {
    return Format::decode(load_as<typename Format::Bits>(base, i));
  }
  HOCKET_HOST_DEVICE static void store(void* base, std::size_t i, float value) {
    store_as<typename Format::Bits>(base, i, Format::encode(value));
  }
};

/// Unsigned and at least int, so that neither overflow nor promotion is undefined.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Sum {
  template <class T>
  HOCKET_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <class T>
  HOCKET_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

struct Max {
  template <class T>
  HOCKET_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
      if (a == b) return signbit(a) ? b : a;  // of -0 and +0: +0
    }
    return a < b ? b : a;
  }
};

struct Min {
  template <class T>
  HOCKET_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
      if (a == b) return signbit(a) ? a : b;
    }
    return b < a ? b : a;
  }
};

struct BitAnd {
  template <class T>
  HOCKET_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <class T>
  HOCKET_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <class T>
  HOCKET_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class T>
HOCKET_HOST_DEVICE T divide(T value, std::uint32_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return value / static_cast<T>(divisor);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(divisor));
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(value) / divisor);
  }
}

}  // namespace hocket::internal::reduce
