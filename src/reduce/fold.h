// Arithmetic: dst receives src[0] op src[1] op ... op src[n-1], in that order, element by element.
//
// fp16, bf16 and fp8 are folded in fp32 and rounded once (to nearest, ties to even). A partial
// result of those types may stay fp32 ("wide"). fp32, fp64 and integers are folded in their own
// type; integer sums and products wrap. Scalars multiply first; the product is rounded like a sum.
// NaN propagates through min and max; -0 < +0. avg is the sum divided by divisor when finish is set
// (integers: truncated towards zero). fp32 -> fp8 overflow: e4m3 gives NaN, e5m2 gives infinity
// (OCP, not saturating). The result depends only on the operands: not on the instruction set, the
// alignment or the position.
//
// NaN: every NaN that arithmetic or a conversion gives is the canonical NaN of its type: positive,
// with only the quiet bit set (fp32 7fc00000, fp64 7ff8..., fp16 7e00, bf16 7fc0, e4m3 7f, e5m2
// 7e). A copy (one source, as wide as the destinations, nothing to divide) changes no byte. The
// processor's floating-point modes must be the default modes: subnormals are not flushed to zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace hocket::internal {

struct FoldSource {
  const void* data = nullptr;
  bool wide = false;  // elements are fp32 although the dtype is narrower
};

/// How destinations are written; the bytes are the same. Non-temporal stores (past the caches) are
/// ordered before every store after the call, as ordinary stores are, so that a flag that is set
/// afterwards publishes them.
enum class Stores : std::uint8_t {
  // Writes each piece to all destinations at once.
  together,
  // Writes all of the first destination, then copies it to the others. Exceptions: a fold of less
  // than 1 KiB is written as by `together`; a copy and an integer average are written piece by
  // piece.
  one_by_one,
  // As together, with ordinary stores to the first destination, and non-temporal stores to the
  // others.
  first_cached,
  // As together, with non-temporal stores to all destinations.
  non_temporal,
  // As together, with non-temporal stores to the first of two destinations, and ordinary stores to
  // the second. A copy, an integer average and a fold with another number of destinations have
  // ordinary stores alone.
  second_cached,
};
constexpr int stores_count = 5;

struct Fold {
  const FoldSource* srcs = nullptr;
  int src_count = 1;  // 1: a copy (or a conversion, if src and dst differ in width)
  void* const* dsts = nullptr;
  int dst_count = 1;      // each receives the same bytes
  bool wide_dst = false;  // dsts stay partial, in the wide type
  std::size_t count = 0;  // elements
  Dtype dtype = Dtype::float32;
  Op op = Op::sum;            // one that computes(op, dtype)
  bool finish = true;         // this is the last fold of the value: divide for avg
  std::uint32_t divisor = 1;  // ranks, for avg; 0 and 1 divide nothing
  /// PreMulSum (with op sum): a scalar for each source, in the wide type, in the low bytes. A
  /// source that is not wide is multiplied by its scalar before it is rounded; so a single source
  /// is not just copied. Null: no source is multiplied.
  const std::uint64_t* scalars = nullptr;
  Stores stores = Stores::together;
};

/// A source and a destination may be exactly the same memory (in place); they must not overlap
/// otherwise. Any alignment is allowed; alignment to 64 bytes is fastest.
void fold(const Fold& fold);

/// The same by plain scalar code. Tests compare fold() with it, bit for bit.
void fold_reference(const Fold& fold);

/// The instruction set that fold() uses on this processor: "AVX3", "AVX2", ...
const char* fold_target();

}  // namespace hocket::internal
