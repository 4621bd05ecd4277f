// Random data that every rank can generate for every other rank: an element is a pure function of
// the seed and its position. So a check needs no copy of the peers' inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hocket/hocket.h"

namespace hocket::perf {

const std::vector<hocketDataType_t>& all_dtypes();
const std::vector<hocketRedOp_t>& all_ops();
std::size_t size_of(hocketDataType_t dtype);
const char* name_of(hocketDataType_t dtype);  // nccl-tests' names: "float", "half", "f8e4m3", ...
const char* name_of(hocketRedOp_t op);        // "sum", "prod", ...
bool is_floating(hocketDataType_t dtype);
/// nccl-tests' mulsum: stands for an operator of hocketRedOpCreatePreMulSum.
inline constexpr auto mul_sum = static_cast<hocketRedOp_t>(1 << 20);
/// The scalar of a rank: 2 or 3.
constexpr int mul_sum_factor(int rank) { return 2 + rank % 2; }
/// Writes that number as an element.
void write_factor(int factor, hocketDataType_t dtype, void* to);
/// Bitwise operators exist for integers only.
bool computes(hocketRedOp_t op, hocketDataType_t dtype);

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Identifies the content of a buffer.
struct Seed {
  std::uint64_t run = 1;   // --seed
  std::uint64_t row = 0;   // the row of the table (size, type, operator, root)
  std::uint64_t pass = 0;  // 0: out of place, 1: in place
  std::uint64_t iteration = 0;
  std::uint64_t slot = 0;  // buffer of a batch
  std::uint64_t rank = 0;
  std::uint64_t value() const;
};

/// The distribution of the values. Integers: all bits random. Floating point: random sign and
/// mantissa. For sum, avg, min and max, magnitudes are in several binades below 1, so that partial
/// sums are inexact. For prod, magnitudes are just below 1 on even ranks and just above 1 on odd
/// ranks, so that a product of many ranks neither overflows nor vanishes. No zeros, no NaN.
enum class Spread { sum, product_even, product_odd };
Spread spread_for(hocketRedOp_t op, int rank);

/// Generates elements [first, first + count) of the buffer that seed identifies.
void generate(void* dst, std::size_t first, std::size_t count, hocketDataType_t dtype,
              Spread spread, std::uint64_t seed);

/// 64-bit hash of the bytes, which depends on their order too.
std::uint64_t hash_bytes(const void* data, std::size_t bytes);

}  // namespace hocket::perf
