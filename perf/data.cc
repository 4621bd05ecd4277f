#include "data.h"

#include <cstring>
#include <initializer_list>

namespace hocket::perf {
namespace {

struct DtypeInfo {
  hocketDataType_t dtype;
  const char* name;
  std::size_t bytes;
  int mantissa_bits;  // stored ones; 0: an integer
  int bias;
};

constexpr DtypeInfo infos[] = {
    {hocketInt8, "int8", 1, 0, 0},          {hocketUint8, "uint8", 1, 0, 0},
    {hocketInt32, "int32", 4, 0, 0},        {hocketUint32, "uint32", 4, 0, 0},
    {hocketInt64, "int64", 8, 0, 0},        {hocketUint64, "uint64", 8, 0, 0},
    {hocketFloat16, "half", 2, 10, 15},     {hocketFloat32, "float", 4, 23, 127},
    {hocketFloat64, "double", 8, 52, 1023}, {hocketBfloat16, "bfloat16", 2, 7, 127},
    {hocketFloat8e4m3, "f8e4m3", 1, 3, 7},  {hocketFloat8e5m2, "f8e5m2", 1, 2, 15},
    {hocketInt16, "int16", 2, 0, 0},        {hocketUint16, "uint16", 2, 0, 0},
};

const DtypeInfo& info_of(hocketDataType_t dtype) {
  if (dtype < hocketNumTypes) return infos[dtype];
  return infos[hocketNumTypes + (dtype - hocketInt16)];
}

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;

/// Converts random bits to the bits of an element. The unused high bits of random may have any
/// value.
template <typename Word>
struct Shaper {
  int mantissa_bits;
  int binades_log2;  // exponents vary over so many bits
  Word top_exponent;
  Word and_mask;  // on the mantissa, before or_mask: keeps magnitudes near 1 for products
  Word or_mask;

  Word operator()(Word random) const {
    constexpr int bits = 8 * sizeof(Word);
    const Word mantissa_mask = static_cast<Word>((Word{1} << mantissa_bits) - 1);
    const Word mantissa = static_cast<Word>((random & mantissa_mask & and_mask) | or_mask);
    const Word down =
        static_cast<Word>((random >> mantissa_bits) & ((Word{1} << binades_log2) - 1));
    const Word exponent = static_cast<Word>(top_exponent - down);
    const Word sign = static_cast<Word>(random & (Word{1} << (bits - 1)));
    return static_cast<Word>(sign | static_cast<Word>(exponent << mantissa_bits) | mantissa);
  }
};

template <typename Word>
Shaper<Word> shaper_for(const DtypeInfo& info, Spread spread) {
  const Word all = static_cast<Word>(~Word{0});
  const Word half = static_cast<Word>(Word{1} << (info.mantissa_bits - 1));
  const Word below_one = static_cast<Word>(info.bias - 1);
  switch (spread) {
    case Spread::product_even:  // [0.75, 1)
      return {info.mantissa_bits, 0, below_one, all, half};
    case Spread::product_odd:  // [1, 1.5)
      return {info.mantissa_bits, 0, static_cast<Word>(info.bias), static_cast<Word>(~half), 0};
    case Spread::sum:
      break;
  }
  return {info.mantissa_bits, sizeof(Word) >= 4 ? 3 : 2, below_one, all, 0};
}

/// Each 64-bit hash serves the 8 / sizeof(Word) elements that lie in one aligned group.
template <typename Word, typename Shape>
void fill(Word* dst, std::size_t first, std::size_t count, std::uint64_t seed, Shape shape) {
  constexpr std::size_t group = 8 / sizeof(Word);
  std::size_t i = 0;
  for (; i < count && (first + i) % group != 0; ++i) {
    const std::uint64_t random = mix(seed + golden * ((first + i) / group));
    dst[i] = shape(static_cast<Word>(random >> (8 * sizeof(Word) * ((first + i) % group))));
  }
  for (std::size_t g = (first + i) / group; i + group <= count; i += group, ++g) {
    const std::uint64_t random = mix(seed + golden * g);
    for (std::size_t k = 0; k < group; ++k) {
      dst[i + k] = shape(static_cast<Word>(random >> (8 * sizeof(Word) * k)));
    }
  }
  for (; i < count; ++i) {
    const std::uint64_t random = mix(seed + golden * ((first + i) / group));
    dst[i] = shape(static_cast<Word>(random >> (8 * sizeof(Word) * ((first + i) % group))));
  }
}

template <typename Word>
void generate_words(void* dst, std::size_t first, std::size_t count, const DtypeInfo& info,
                    Spread spread, std::uint64_t seed) {
  Word* out = static_cast<Word*>(dst);
  if (info.mantissa_bits == 0) {
    fill(out, first, count, seed, [](Word random) { return random; });
  } else {
    fill(out, first, count, seed, shaper_for<Word>(info, spread));
  }
}

}  // namespace

const std::vector<hocketDataType_t>& all_dtypes() {
  static const std::vector<hocketDataType_t> all = [] {
    std::vector<hocketDataType_t> dtypes;
    for (const DtypeInfo& info : infos) dtypes.push_back(info.dtype);
    return dtypes;
  }();
  return all;
}
const std::vector<hocketRedOp_t>& all_ops() {
  static const std::vector<hocketRedOp_t> all = {hocketSum, hocketProd, hocketMax,
                                                 hocketMin, hocketAvg,  hocketAnd,
                                                 hocketOr,  hocketXor,  mul_sum};
  return all;
}

std::size_t size_of(hocketDataType_t dtype) { return info_of(dtype).bytes; }
const char* name_of(hocketDataType_t dtype) { return info_of(dtype).name; }
bool is_floating(hocketDataType_t dtype) { return info_of(dtype).mantissa_bits != 0; }
bool computes(hocketRedOp_t op, hocketDataType_t dtype) {
  return op < hocketAnd || op == mul_sum || !is_floating(dtype);
}
void write_factor(int factor, hocketDataType_t dtype, void* to) {
  const DtypeInfo& info = info_of(dtype);
  auto bits = static_cast<std::uint64_t>(factor);
  if (info.mantissa_bits != 0) {  // 2: the next exponent above that of 1; 3: and half of it
    bits = static_cast<std::uint64_t>(info.bias + 1) << info.mantissa_bits;
    if (factor == 3) bits |= std::uint64_t{1} << (info.mantissa_bits - 1);
  }
  std::memcpy(to, &bits, info.bytes);
}

const char* name_of(hocketRedOp_t op) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg"};
  static const char* const bitwise[] = {"and", "or", "xor"};
  if (op == mul_sum) return "mulsum";
  return op < hocketAnd ? names[op] : bitwise[op - hocketAnd];
}

std::uint64_t Seed::value() const {
  std::uint64_t h = mix(run + golden);
  for (std::uint64_t part : {row, pass, iteration, slot, rank}) h = mix((h ^ part) + golden);
  return h;
}

Spread spread_for(hocketRedOp_t op, int rank) {
  if (op != hocketProd) return Spread::sum;
  return rank % 2 == 0 ? Spread::product_even : Spread::product_odd;
}

void generate(void* dst, std::size_t first, std::size_t count, hocketDataType_t dtype,
              Spread spread, std::uint64_t seed) {
  const DtypeInfo& info = info_of(dtype);
  switch (info.bytes) {
    case 1:
      return generate_words<std::uint8_t>(dst, first, count, info, spread, seed);
    case 2:
      return generate_words<std::uint16_t>(dst, first, count, info, spread, seed);
    case 4:
      return generate_words<std::uint32_t>(dst, first, count, info, spread, seed);
    default:
      return generate_words<std::uint64_t>(dst, first, count, info, spread, seed);
  }
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  // Four independent chains of multiply-and-rotate keep the multiplier busy.
  constexpr std::uint64_t k = 0xff51afd7ed558ccdULL;
  std::uint64_t chain[4] = {golden, golden * 2, golden * 3, golden * 4};
  const auto* p = static_cast<const unsigned char*>(data);
  std::size_t left = bytes;
  const auto absorb = [](std::uint64_t& h, std::uint64_t word) {
    h = (h ^ word) * k;
    h ^= h >> 32;
  };
  for (; left >= 32; p += 32, left -= 32) {
    std::uint64_t words[4];
    std::memcpy(words, p, 32);
    for (int i = 0; i < 4; ++i) absorb(chain[i], words[i]);
  }
  while (left > 0) {
    const std::size_t n = left < 8 ? left : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, p, n);
    absorb(chain[0], word);
    p += n;
    left -= n;
  }
  std::uint64_t h = mix(bytes + golden);
  for (std::uint64_t c : chain) h = mix((h ^ c) + golden);
  return h;
}

}  // namespace hocket::perf
