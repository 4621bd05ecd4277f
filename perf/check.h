// Is a result right? The inputs are generated again (data.h), so a rank checks alone, whatever the
// library did to carry them.
#pragma once

#include <cstddef>

#include "data.h"
#include "options.h"

namespace hocket::perf {

struct Expectation {
  Collective collective = Collective::all_reduce;
  hocketDataType_t dtype = hocketFloat32;
  hocketRedOp_t op = hocketSum;
  int root = 0;
  int rank = 0;
  int ranks = 1;
  std::size_t count = 0;  // elements, as the call's count parameter
  Seed seed;              // seed.rank is set by whoever generates

  std::size_t input_count() const {
    return collective == Collective::reduce_scatter ? count * static_cast<std::size_t>(ranks)
                                                    : count;
  }
  std::size_t output_count() const {
    if (collective == Collective::bandwidth && sends_first()) return 0;
    return collective == Collective::all_gather ? count * static_cast<std::size_t>(ranks) : count;
  }
  /// The other rank of a pair: rank r of the first half and rank r + ranks / 2.
  int partner() const { return (rank + ranks / 2) % ranks; }
  bool sends_first() const { return rank < ranks / 2; }
  /// Whose input a copy on this rank holds.
  int source() const {
    if (collective == Collective::broadcast) return root;
    return is_pair(collective) ? partner() : (rank + ranks - 1) % ranks;
  }
  /// All ranks must hold the same bytes afterwards.
  bool same_on_all_ranks() const {
    return collective == Collective::all_reduce || collective == Collective::all_gather ||
           collective == Collective::broadcast;
  }
  /// In place, is the result the same when the operation runs on its own result again?
  bool repeatable_in_place() const {
    return collective == Collective::all_gather || collective == Collective::broadcast;
  }
  bool has_redop() const {
    return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
  }
};

/// What `rank` puts in.
void generate_input(const Expectation& expectation, int rank, void* dst);

/// Elements of the result that are outside the error bound. Copies, integers, min and max must be
/// exact. Floating-point sums, products and averages are held against a reference in fp64 (fp64
/// itself: in the wider long double) by this bound: n - 1 roundings in the accumulator's precision
/// (fp32 below 32 bits of data), relative to the sum of magnitudes because no order of additions is
/// promised; two more for avg's division; and one rounding to the data's type where that is
/// narrower.
std::size_t count_wrong(const Expectation& expectation, const void* result);

}  // namespace hocket::perf
