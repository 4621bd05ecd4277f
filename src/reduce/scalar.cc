// Folds element by element in plain C++: the reference for tests, the tails of the vector kernels,
// and folds that are too short for a vector.
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "reduce/formats.h"
#include "reduce/kernels.h"

namespace hocket::internal {
namespace reduce {
namespace {

template <class T>
T load_as(const void* base, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store_as(void* base, std::size_t i, T value) {
  std::memcpy(static_cast<char*>(base) + i * sizeof(T), &value, sizeof(T));
}

template <class T>
T canonical(T value) {
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
  static T load(const void* base, std::size_t i) { return load_as<T>(base, i); }
  static void store(void* base, std::size_t i, T value) { store_as<T>(base, i, value); }
};

/// dtypes that are folded in fp32.
template <class Format>
struct Widened {
  using Wide = float;
  static constexpr bool widened = true;
  static float load(const void* base, std::size_t i) {
    return Format::decode(load_as<typename Format::Bits>(base, i));
  }
  static void store(void* base, std::size_t i, float value) {
    store_as<typename Format::Bits>(base, i, Format::encode(value));
  }
};

/// Unsigned and at least int, so that neither overflow nor promotion is undefined.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

struct Max {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
      if (a == b) return std::signbit(a) ? b : a;  // of -0 and +0: +0
    }
    return a < b ? b : a;
  }
};

struct Min {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
      if (a == b) return std::signbit(a) ? a : b;
    }
    return b < a ? b : a;
  }
};

template <class T>
T divide(T value, std::uint32_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return value / static_cast<T>(divisor);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(divisor));
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(value) / divisor);
  }
}

template <class Element, class Operator>
void fold_scalar(const Fold& f, std::size_t begin, std::size_t end) {
  using Wide = typename Element::Wide;
  const bool division = divides(f);
  const auto load = [](const FoldSource& source, std::size_t i) {
    if constexpr (Element::widened) {
      if (source.wide) return load_as<Wide>(source.data, i);
    }
    return Element::load(source.data, i);
  };
  for (std::size_t i = begin; i < end; ++i) {
    Wide value = load(f.srcs[0], i);
    for (int s = 1; s < f.src_count; ++s) value = Operator::apply(value, load(f.srcs[s], i));
    if (division) value = divide(value, f.divisor);
    value = canonical(value);
    for (int d = 0; d < f.dst_count; ++d) {
      if (Element::widened && f.wide_dst) {
        store_as<Wide>(f.dsts[d], i, value);
      } else {
        Element::store(f.dsts[d], i, value);
      }
    }
  }
}

template <class Element>
constexpr KernelRow row() {
  return {{fold_scalar<Element, Sum>, fold_scalar<Element, Prod>, fold_scalar<Element, Max>,
           fold_scalar<Element, Min>}};
}

}  // namespace

const KernelRow scalar_kernels[dtype_count] = {
    row<Plain<std::int8_t>>(),   row<Plain<std::uint8_t>>(), row<Plain<std::int32_t>>(),
    row<Plain<std::uint32_t>>(), row<Plain<std::int64_t>>(), row<Plain<std::uint64_t>>(),
    row<Widened<Float16>>(),     row<Plain<float>>(),        row<Plain<double>>(),
    row<Widened<Bfloat16>>(),    row<Widened<E4m3>>(),       row<Widened<E5m2>>(),
};

}  // namespace reduce

void fold_reference(const Fold& f) {
  const bool widened = is_widened(f.dtype);
  if (f.src_count == 1 && !reduce::divides(f) &&
      (!widened || f.srcs[0].wide == f.wide_dst)) {  // a copy: NaN payloads survive
    const std::size_t size = f.wide_dst ? wide_size_of(f.dtype) : size_of(f.dtype);
    for (int d = 0; d < f.dst_count; ++d) {
      if (f.count != 0) std::memmove(f.dsts[d], f.srcs[0].data, f.count * size);
    }
    return;
  }
  const auto& row = reduce::scalar_kernels[static_cast<int>(f.dtype)];
  row.ops[reduce::kernel_op(f.op)](f, 0, f.count);
}

}  // namespace hocket::internal
