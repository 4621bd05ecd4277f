#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace hocket::perf {
namespace {

constexpr std::size_t piece_count = 4096;  // elements checked at a time; temporaries stay in cache

// Decodes the bits of a type to a number. Narrow types are decoded by their definition here, not by
// the library's code, so that the check does not share the library's mistakes.
template <typename Word, int mantissa_bits, int exponent_bits, bool has_infinity>
struct Narrow {
  using Storage = Word;
  using Reference = double;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr double accumulator_unit = 0x1p-24;  // fp32
  static double final_unit() { return std::ldexp(1.0, -mantissa_bits - 1); }
  static double smallest() { return std::ldexp(1.0, 1 - bias - mantissa_bits); }
  static double largest() {
    const int top = (1 << exponent_bits) - 1 - (has_infinity ? 1 : 0);
    const Word mantissa = (1 << mantissa_bits) - 1 - (has_infinity ? 0 : 1);  // e4m3: 448
    return decode(static_cast<Word>((top << mantissa_bits) | mantissa));
  }
  static double decode(Word bits) {
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const bool negative = (bits >> (8 * sizeof(Word) - 1)) & 1;
    double value;
    if (has_infinity && exponent == (1 << exponent_bits) - 1) {
      value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
    } else if (!has_infinity && (bits & ((1 << (8 * sizeof(Word) - 1)) - 1)) == 0x7f) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
    } else {
      value = std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
    }
    return negative ? -value : value;
  }
};

template <typename Float, typename Wider>
struct Plain {
  using Storage = Float;
  using Reference = Wider;
  static constexpr double accumulator_unit = std::numeric_limits<Float>::epsilon() / 2;
  static double final_unit() { return 0; }  // the accumulator has the data's own type
  static double smallest() { return 0; }
  static double largest() { return static_cast<double>(std::numeric_limits<Float>::max()); }
  static Wider decode(Float value) { return value; }
};

/// k roundings of relative size u: k u / (1 - k u).
double gamma(int k, double u) { return k * u / (1 - k * u); }

/// Elements [first, first + count) of the input of a rank.
void input_piece(const Expectation& e, int rank, std::size_t first, std::size_t count, void* dst) {
  Seed seed = e.seed;
  seed.rank = static_cast<std::uint64_t>(rank);
  const Spread spread = e.has_redop() ? spread_for(e.op, rank) : Spread::sum;
  generate(dst, first, count, e.dtype, spread, seed.value());
}

/// By which the input of a rank is multiplied.
int factor_of(const Expectation& e, int rank) { return e.op == mul_sum ? mul_sum_factor(rank) : 1; }

template <typename Type>
std::size_t wrong_floats(const Expectation& e, std::size_t first, std::size_t count,
                         const typename Type::Storage* got) {
  using Reference = typename Type::Reference;
  std::vector<typename Type::Storage> input(count);
  std::vector<Reference> value(count), magnitude(count);
  for (int r = 0; r < e.ranks; ++r) {
    input_piece(e, r, first, count, input.data());
    for (std::size_t i = 0; i < count; ++i) {
      const Reference x = factor_of(e, r) * Type::decode(input[i]);  // exact
      if (r == 0) {
        value[i] = x;
        magnitude[i] = std::fabs(x);
      } else if (e.op == hocketProd) {
        value[i] *= x;
        magnitude[i] *= std::fabs(x);
      } else if (e.op == hocketMin || e.op == hocketMax) {
        value[i] = e.op == hocketMin ? std::min(value[i], x) : std::max(value[i], x);
      } else {
        value[i] += x;
        magnitude[i] += std::fabs(x);
      }
    }
  }
  const bool exact = e.op == hocketMin || e.op == hocketMax;
  const int roundings =
      e.ranks - 1 + (e.op == hocketAvg && e.ranks > 1 ? 2 : 0) + (e.op == mul_sum ? 1 : 0);
  const Reference unit_reference = std::numeric_limits<Reference>::epsilon() / 2;
  const Reference relative =
      exact ? 0 : gamma(roundings, Type::accumulator_unit) + (e.ranks + 1) * unit_reference;
  const Reference divisor = e.op == hocketAvg ? e.ranks : 1;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Reference expected = value[i] / divisor;
    const Reference accumulated = relative * magnitude[i] / divisor;
    Reference bound = e.ranks == 1 || exact ? 0 : accumulated;
    if (!exact && e.ranks > 1 && Type::final_unit() > 0) {
      bound += std::max<Reference>(Type::final_unit() * (std::fabs(expected) + accumulated),
                                   Type::smallest() / 2);
    }
    const Reference result = Type::decode(got[i]);
    // Beyond the largest finite value, the overflow of the type (infinity, NaN or that value) is
    // right.
    if (std::fabs(expected) + bound > Type::largest() && !(std::fabs(result) < Type::largest())) {
      continue;
    }
    wrong += !(std::fabs(result - expected) <= bound);  // a NaN result counts as wrong
  }
  return wrong;
}

template <typename Integer>
Integer combine(hocketRedOp_t op, Integer a, Integer b) {
  using Unsigned = std::make_unsigned_t<Integer>;
  using Wide = std::uint64_t;  // no promotion to int, so that wrapping is defined
  switch (op) {
    case hocketProd:
      return static_cast<Integer>(static_cast<Unsigned>(Wide(Unsigned(a)) * Wide(Unsigned(b))));
    case hocketMin:
      return std::min(a, b);
    case hocketMax:
      return std::max(a, b);
    case hocketAnd:
      return static_cast<Integer>(a & b);
    case hocketOr:
      return static_cast<Integer>(a | b);
    case hocketXor:
      return static_cast<Integer>(a ^ b);
    default:
      return static_cast<Integer>(static_cast<Unsigned>(Wide(Unsigned(a)) + Wide(Unsigned(b))));
  }
}

/// Sums and products wrap; avg divides the wrapped sum, towards zero.
template <typename Integer>
std::size_t wrong_integers(const Expectation& e, std::size_t first, std::size_t count,
                           const Integer* got) {
  std::vector<Integer> input(count), value(count);
  for (int r = 0; r < e.ranks; ++r) {
    input_piece(e, r, first, count, input.data());
    const auto factor = static_cast<Integer>(factor_of(e, r));
    for (Integer& x : input) x = combine(hocketProd, x, factor);
    for (std::size_t i = 0; i < count; ++i) {
      value[i] = r == 0 ? input[i] : combine(e.op, value[i], input[i]);
    }
  }
  using Wide = std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (e.op == hocketAvg) value[i] = static_cast<Integer>(Wide(value[i]) / Wide(e.ranks));
    wrong += value[i] != got[i];
  }
  return wrong;
}

std::size_t wrong_reduced(const Expectation& e, std::size_t first, std::size_t count,
                          const void* got) {
  switch (e.dtype) {
    case hocketInt8:
      return wrong_integers(e, first, count, static_cast<const std::int8_t*>(got));
    case hocketUint8:
      return wrong_integers(e, first, count, static_cast<const std::uint8_t*>(got));
    case hocketInt16:
      return wrong_integers(e, first, count, static_cast<const std::int16_t*>(got));
    case hocketUint16:
      return wrong_integers(e, first, count, static_cast<const std::uint16_t*>(got));
    case hocketInt32:
      return wrong_integers(e, first, count, static_cast<const std::int32_t*>(got));
    case hocketUint32:
      return wrong_integers(e, first, count, static_cast<const std::uint32_t*>(got));
    case hocketInt64:
      return wrong_integers(e, first, count, static_cast<const std::int64_t*>(got));
    case hocketUint64:
      return wrong_integers(e, first, count, static_cast<const std::uint64_t*>(got));
    case hocketFloat32:
      return wrong_floats<Plain<float, double>>(e, first, count, static_cast<const float*>(got));
    case hocketFloat64:
      return wrong_floats<Plain<double, long double>>(e, first, count,
                                                      static_cast<const double*>(got));
    case hocketFloat16:
      return wrong_floats<Narrow<std::uint16_t, 10, 5, true>>(
          e, first, count, static_cast<const std::uint16_t*>(got));
    case hocketBfloat16:
      return wrong_floats<Narrow<std::uint16_t, 7, 8, true>>(
          e, first, count, static_cast<const std::uint16_t*>(got));
    case hocketFloat8e4m3:
      return wrong_floats<Narrow<std::uint8_t, 3, 4, false>>(e, first, count,
                                                             static_cast<const std::uint8_t*>(got));
    default:
      return wrong_floats<Narrow<std::uint8_t, 2, 5, true>>(e, first, count,
                                                            static_cast<const std::uint8_t*>(got));
  }
}

/// got must be elements [first, first + count) of the input of `source`.
std::size_t wrong_copied(const Expectation& e, int source, std::size_t first, std::size_t count,
                         const char* got) {
  const std::size_t size = size_of(e.dtype);
  std::vector<char> expected(count * size);
  input_piece(e, source, first, count, expected.data());
  if (std::memcmp(expected.data(), got, expected.size()) == 0) return 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    wrong += std::memcmp(expected.data() + i * size, got + i * size, size) != 0;
  }
  return wrong;
}

}  // namespace

Blocks Expectation::blocks() const {
  Blocks blocks;
  for (int block = 0; block < ranks; ++block) {
    blocks.counts.push_back(block_count(rank, block));
    blocks.starts.push_back(block_start(rank, block));
  }
  return blocks;
}

void generate_input(const Expectation& e, int rank, void* dst) {
  input_piece(e, rank, 0, e.input_count(rank), dst);
}

std::size_t count_wrong(const Expectation& e, const void* result) {
  const auto* got = static_cast<const char*>(result);
  const std::size_t size = size_of(e.dtype);
  const bool parts = has_output_parts(e.collective);
  if (e.output_count() == 0) return 0;
  std::size_t wrong = 0;
  for (int part = 0; part < (parts ? e.ranks : 1); ++part) {
    const int from = parts ? part : e.source();
    const std::size_t whole = parts ? e.block_count(e.rank, part) : e.own_count(e.rank);
    for (std::size_t first = 0; first < whole; first += piece_count) {
      const std::size_t count = std::min(piece_count, whole - first);
      const std::size_t at = e.input_part(from) + first;
      if (e.has_redop()) {
        wrong += wrong_reduced(e, at, count, got);
      } else {
        wrong += wrong_copied(e, from, at, count, got);
      }
      got += count * size;
    }
  }
  return wrong;
}

}  // namespace hocket::perf
