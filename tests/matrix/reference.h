// The expected results of collectives, computed by plain scalar code that shares nothing with the
// library: formats are decoded and encoded in double, operators run in the accumulator type, in
// rank order.
#pragma once

#include <hocket/hocket.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace reference {

using Bytes = std::vector<std::uint8_t>;

inline constexpr hocketDataType_t types[] = {
    hocketInt8,       hocketUint8,      hocketInt32,   hocketUint32,  hocketInt64,
    hocketUint64,     hocketFloat16,    hocketFloat32, hocketFloat64, hocketBfloat16,
    hocketFloat8e4m3, hocketFloat8e5m2, hocketInt16,   hocketUint16};
inline constexpr hocketRedOp_t operators[] = {hocketSum, hocketProd, hocketMax, hocketMin,
                                              hocketAvg, hocketAnd,  hocketOr,  hocketXor};
/// Stands for an operator of hocketRedOpCreatePreMulSum with scalar_of() each rank.
inline constexpr auto pre_mul_sum = static_cast<hocketRedOp_t>(1 << 20);

inline std::size_t size_of(hocketDataType_t type) {
  static constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type == hocketInt16 || type == hocketUint16 ? 2 : sizes[type];
}
inline const char* name_of(hocketDataType_t type) {
  static constexpr const char* names[] = {"int8",    "uint8",    "int32",   "uint32",
                                          "int64",   "uint64",   "float16", "float32",
                                          "float64", "bfloat16", "e4m3",    "e5m2"};
  if (type == hocketInt16) return "int16";
  return type == hocketUint16 ? "uint16" : names[type];
}
inline const char* name_of(hocketRedOp_t op) {
  static constexpr const char* names[] = {"sum", "prod", "max", "min", "avg"};
  static constexpr const char* bitwise[] = {"and", "or", "xor"};
  if (op == pre_mul_sum) return "premulsum";
  return op < hocketAnd ? names[op] : bitwise[op - hocketAnd];
}
inline bool is_integer(hocketDataType_t type) {
  return type <= hocketUint64 || type == hocketInt16 || type == hocketUint16;
}
/// Bitwise operators exist for integers only.
inline bool computes(hocketRedOp_t op, hocketDataType_t type) {
  return op < hocketAnd || op == pre_mul_sum || is_integer(type);
}

/// A binary floating-point format below 32 bits.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;
  std::uint16_t nan;
  double max;
};
inline Format format_of(hocketDataType_t type) {
  switch (type) {
    case hocketFloat16:
      return {5, 10, 15, true, 0x7e00, 65504.0};
    case hocketBfloat16:
      return {8, 7, 127, true, 0x7fc0, std::ldexp(255.0, 120)};
    case hocketFloat8e4m3:
      return {4, 3, 7, false, 0x7f, 448.0};
    default:
      return {5, 2, 15, true, 0x7e, 57344.0};
  }
}

inline double decode_small(const Format& f, std::uint16_t bits) {
  const int total = f.exponent_bits + f.mantissa_bits;
  const bool negative = (bits >> total) & 1;
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  double value;
  if (exponent == top && f.has_infinity) {
    value = mantissa == 0 ? HUGE_VAL : NAN;
  } else if (exponent == top && mantissa == (1 << f.mantissa_bits) - 1) {
    value = NAN;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

/// Of a normal double, and 2 to the power of what is in its range: without the library's calls,
/// which take most of the time of a test with a million elements.
inline double power_of_2(int exponent) {
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline int exponent_of(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<int>(bits >> 52 & 0x7ff) - 1023;
}

/// To nearest, ties to even; beyond the largest value: infinity, or NaN if the type has no
/// infinity.
inline std::uint16_t encode_small(const Format& f, double value) {
  if (std::isnan(value)) return f.nan;
  const int total = f.exponent_bits + f.mantissa_bits;
  const auto sign = static_cast<std::uint16_t>((std::signbit(value) ? 1 : 0) << total);
  const auto infinity = static_cast<std::uint16_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
  const auto overflow = static_cast<std::uint16_t>(f.has_infinity ? infinity | sign : f.nan);
  const double size = std::fabs(value);
  if (std::isinf(size)) return overflow;
  if (size == 0) return sign;
  int exponent = std::max(exponent_of(size), 1 - f.bias);
  const int last = exponent - f.mantissa_bits;  // the exponent of the last place
  const double quantum = power_of_2(last);
  // Added to 2^52, a number is rounded to a whole one.
  auto steps = static_cast<int>(size * power_of_2(-last) + 0x1p52 - 0x1p52);
  if (steps * quantum > f.max) return overflow;
  if (steps < (1 << f.mantissa_bits)) return static_cast<std::uint16_t>(sign | steps);
  if (steps == (2 << f.mantissa_bits)) {
    steps /= 2;
    ++exponent;
  }
  return static_cast<std::uint16_t>(sign | ((exponent + f.bias) << f.mantissa_bits) |
                                    (steps - (1 << f.mantissa_bits)));
}

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// The values of all elements of a format below 32 bits.
inline const std::vector<double>& values_of(hocketDataType_t type) {
  static const auto table = [](hocketDataType_t of) {
    std::vector<double> values(std::size_t{1} << (8 * size_of(of)));
    for (std::size_t bits = 0; bits < values.size(); ++bits) {
      values[bits] = decode_small(format_of(of), static_cast<std::uint16_t>(bits));
    }
    return values;
  };
  static const std::vector<double> float16 = table(hocketFloat16), bfloat16 = table(hocketBfloat16),
                                   e4m3 = table(hocketFloat8e4m3), e5m2 = table(hocketFloat8e5m2);
  return type == hocketFloat16      ? float16
         : type == hocketBfloat16   ? bfloat16
         : type == hocketFloat8e4m3 ? e4m3
                                    : e5m2;
}

/// Any floating-point element as a double (exact).
inline double decode(hocketDataType_t type, const void* from) {
  if (type == hocketFloat64) return load<double>(from);
  if (type == hocketFloat32) return load<float>(from);
  const std::uint16_t bits =
      size_of(type) == 2 ? load<std::uint16_t>(from) : load<std::uint8_t>(from);
  return values_of(type)[bits];
}

/// The element nearest to value; NaN in its canonical form.
inline void encode(hocketDataType_t type, double value, void* to) {
  if (type == hocketFloat64) {
    if (std::isnan(value)) return store(to, std::uint64_t{0x7ff8000000000000});
    return store(to, value);
  }
  if (type == hocketFloat32) {
    if (std::isnan(value)) return store(to, std::uint32_t{0x7fc00000});
    return store(to, static_cast<float>(value));
  }
  const std::uint16_t bits = encode_small(format_of(type), value);
  if (size_of(type) == 2) return store(to, bits);
  store(to, static_cast<std::uint8_t>(bits));
}

template <typename A>
A combine(hocketRedOp_t op, A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (op == hocketMin || op == hocketMax) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
      const bool a_first = a < b || (a == b && std::signbit(a));
      return (op == hocketMin) == a_first ? a : b;
    }
    return op == hocketProd ? a * b : a + b;
  } else {
    using U = std::make_unsigned_t<A>;
    switch (op) {
      case hocketMin:
        return a < b ? a : b;
      case hocketMax:
        return a > b ? a : b;
      case hocketAnd:
        return static_cast<A>(a & b);
      case hocketOr:
        return static_cast<A>(a | b);
      case hocketXor:
        return static_cast<A>(a ^ b);
      case hocketProd:
        return static_cast<A>(static_cast<std::uint64_t>(static_cast<U>(a)) * static_cast<U>(b));
      default:
        return static_cast<A>(static_cast<std::uint64_t>(static_cast<U>(a)) + static_cast<U>(b));
    }
  }
}

using Inputs = std::vector<const std::uint8_t*>;

/// The scalar of a rank: of integers any bits; of floating-point types one that makes the products
/// of exact data exact.
inline void scalar_of(hocketDataType_t type, std::size_t rank, void* to) {
  if (is_integer(type)) {
    const std::uint64_t bits = (rank + 3) * 0x9e3779b97f4a7c15ULL;
    std::memcpy(to, &bits, size_of(type));
    return;
  }
  static constexpr double values[] = {0.5, -2, 3, 1.5, 0.25};
  encode(type, values[rank % 5], to);
}
/// The scalars of the ranks, as numbers to compute with.
template <typename A>
std::vector<A> scalars_of(hocketDataType_t type, std::size_t ranks) {
  std::vector<A> scalars;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint8_t scalar[8];
    scalar_of(type, rank, scalar);
    if constexpr (std::is_floating_point_v<A>) {
      scalars.push_back(static_cast<A>(decode(type, scalar)));
    } else {
      scalars.push_back(load<A>(scalar));
    }
  }
  return scalars;
}
template <typename A>
A scaled(hocketRedOp_t op, A scalar, A value) {
  return op == pre_mul_sum ? combine<A>(hocketProd, scalar, value) : value;
}

template <typename T>
void reduce_integers(hocketDataType_t type, hocketRedOp_t op, const Inputs& inputs,
                     std::size_t count, std::uint8_t* out) {
  const std::vector<T> scalars = scalars_of<T>(type, inputs.size());
  const auto operand = [&](std::size_t r, std::size_t i) {
    return scaled<T>(op, scalars[r], load<T>(inputs[r] + i * sizeof(T)));
  };
  for (std::size_t i = 0; i < count; ++i) {
    T value = operand(0, i);
    for (std::size_t r = 1; r < inputs.size(); ++r) value = combine<T>(op, value, operand(r, i));
    if (op == hocketAvg) value = static_cast<T>(value / static_cast<T>(inputs.size()));
    store(out + i * sizeof(T), value);
  }
}

template <typename A>
void reduce_floats(hocketDataType_t type, hocketRedOp_t op, const Inputs& inputs, std::size_t count,
                   std::uint8_t* out) {
  const std::size_t size = size_of(type);
  const std::vector<A> scalars = scalars_of<A>(type, inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto operand = [&](std::size_t r) {
      return scaled<A>(op, scalars[r], static_cast<A>(decode(type, inputs[r] + i * size)));
    };
    volatile A value = operand(0);
    for (std::size_t r = 1; r < inputs.size(); ++r) value = combine<A>(op, value, operand(r));
    if (op == hocketAvg) value = value / static_cast<A>(inputs.size());
    encode(type, value, out + i * size);
  }
}

/// out := inputs[0] op inputs[1] op ..., in that order, rounded once.
inline void reduce(hocketDataType_t type, hocketRedOp_t op, const Inputs& inputs, std::size_t count,
                   std::uint8_t* out) {
  if (inputs.size() == 1 && op != pre_mul_sum) {  // nothing is computed: the bytes stay
    if (count > 0) std::memcpy(out, inputs[0], count * size_of(type));
    return;
  }
  switch (type) {
    case hocketInt8:
      return reduce_integers<std::int8_t>(type, op, inputs, count, out);
    case hocketUint8:
      return reduce_integers<std::uint8_t>(type, op, inputs, count, out);
    case hocketInt16:
      return reduce_integers<std::int16_t>(type, op, inputs, count, out);
    case hocketUint16:
      return reduce_integers<std::uint16_t>(type, op, inputs, count, out);
    case hocketInt32:
      return reduce_integers<std::int32_t>(type, op, inputs, count, out);
    case hocketUint32:
      return reduce_integers<std::uint32_t>(type, op, inputs, count, out);
    case hocketInt64:
      return reduce_integers<std::int64_t>(type, op, inputs, count, out);
    case hocketUint64:
      return reduce_integers<std::uint64_t>(type, op, inputs, count, out);
    case hocketFloat64:
      return reduce_floats<double>(type, op, inputs, count, out);
    default:
      return reduce_floats<float>(type, op, inputs, count, out);
  }
}

enum class Data {
  any,    // all bit patterns, each eighth element near its type's NaNs: right in rank order only
  small,  // in [-1, 1]: every order of additions is close
  exact   // small whole numbers: every order gives the same bits
};

/// The element's exponent becomes the highest: infinity, or a NaN of any payload and sign.
inline void raise_exponent(hocketDataType_t type, std::uint8_t* at) {
  std::uint64_t mask = std::uint64_t{0x7ff} << 52;
  if (type == hocketFloat32) {
    mask = std::uint64_t{0xff} << 23;
  } else if (type != hocketFloat64) {
    const Format f = format_of(type);
    mask = ((std::uint64_t{1} << f.exponent_bits) - 1) << f.mantissa_bits;
  }
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, size_of(type));
  bits |= mask;
  std::memcpy(at, &bits, size_of(type));
}

/// Random numbers that need no memory: a sanitizer watches each access of a generator's.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0xd1342543de82ef95ULL + 1) {}
  std::uint64_t operator()() {  // splitmix64
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_;
};

inline void fill_bytes(std::uint64_t seed, Bytes* bytes) {
  Random random(seed);
  for (std::size_t i = 0; i < bytes->size(); i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(bytes->data() + i, &bits, std::min<std::size_t>(8, bytes->size() - i));
  }
}

inline void fill(Data data, hocketDataType_t type, std::size_t count, std::uint64_t seed,
                 std::uint8_t* to) {
  Random random(seed);
  const std::size_t size = size_of(type);
  static constexpr double values[] = {1, -1, 2, 0.5, 1, -0.0, -2, 3};
  std::uint8_t exact[8][8] = {};
  for (std::size_t v = 0; v < 8 && !is_integer(type); ++v) encode(type, values[v], exact[v]);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    std::uint8_t* const at = to + i * size;
    if (is_integer(type)) {
      std::memcpy(at, &bits, size);
    } else if (data == Data::any) {
      std::memcpy(at, &bits, size);
      if (i % 8 == 0 && (random() & 1)) raise_exponent(type, at);
    } else if (data == Data::small) {
      encode(type, static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-63, at);
    } else {
      std::memcpy(at, exact[bits % 8], size);
    }
  }
}

/// The bounds of the sum (or average, or pre-multiplied sum) of the inputs, added in fp32 (fp64 for
/// fp64) in any order and rounded to the type once.
inline void bounds(hocketDataType_t type, hocketRedOp_t op, const Inputs& inputs, std::size_t count,
                   std::uint8_t* low, std::uint8_t* high) {
  const std::size_t size = size_of(type);
  const auto scalars = scalars_of<long double>(type, inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    long double sum = 0, sizes = 0;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      const auto value = scaled<long double>(op, scalars[r], decode(type, inputs[r] + i * size));
      sum += value;
      sizes += std::fabs(value);
    }
    const double epsilon = type == hocketFloat64 ? 0x1p-53 : 0x1p-24;
    long double error = sizes * epsilon * static_cast<long double>(inputs.size() + 2);
    if (op == hocketAvg) {
      sum /= static_cast<long double>(inputs.size());
      error /= static_cast<long double>(inputs.size());
    }
    encode(type, static_cast<double>(sum - error), low + i * size);
    encode(type, static_cast<double>(sum + error), high + i * size);
  }
}

}  // namespace reference
