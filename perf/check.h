// Checks results. A rank generates the inputs of all ranks again (data.h), so the check does not
// depend on data that the library has moved.
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
  Seed seed;              // the generating function sets seed.rank

  /// Of the larger of input and output, whether this rank has that buffer or not.
  std::size_t whole_count() const {
    return has_parts(collective) ? count * static_cast<std::size_t>(ranks) : count;
  }
  std::size_t input_count() const {
    return has_input_parts(collective) ? count * static_cast<std::size_t>(ranks) : count;
  }
  std::size_t output_count() const {
    if (collective == Collective::bandwidth && sends_first()) return 0;
    const bool at_root = collective == Collective::reduce || collective == Collective::gather;
    if (at_root && rank != root) return 0;
    return has_output_parts(collective) ? count * static_cast<std::size_t>(ranks) : count;
  }
  /// The other rank of a pair: rank r of the first half and rank r + ranks / 2.
  int partner() const { return (rank + ranks / 2) % ranks; }
  bool sends_first() const { return rank < ranks / 2; }
  /// The rank whose input a copy on this rank must have.
  int source() const {
    if (collective == Collective::broadcast || collective == Collective::scatter) return root;
    return is_pair(collective) ? partner() : (rank + ranks - 1) % ranks;
  }
  /// True if all ranks must have the same bytes afterwards.
  bool same_on_all_ranks() const {
    return collective == Collective::all_reduce || collective == Collective::all_gather ||
           collective == Collective::broadcast;
  }
  /// True if the operation in place, applied to its own result, gives the same result again.
  bool repeatable_in_place() const {
    return collective == Collective::all_gather || collective == Collective::broadcast ||
           collective == Collective::gather || collective == Collective::scatter;
  }
  bool has_redop() const { return perf::has_redop(collective); }
  /// Where the elements that this rank receives begin in the input of a rank, or in its reduction.
  std::size_t input_part() const {
    return has_input_parts(collective) ? static_cast<std::size_t>(rank) * count : 0;
  }
};

/// The input of `rank`.
void generate_input(const Expectation& expectation, int rank, void* dst);

/// Counts the elements of the result that are outside the error bound. Copies, integers, min and
/// max must be exact. Floating-point sums, products and averages are compared with a reference in
/// fp64 (fp64 itself: in long double). The bound is the sum of these errors: n - 1 roundings in the
/// precision of the accumulator (fp32 for types below 32 bits), relative to the sum of magnitudes,
/// because the order of additions is not specified; two more roundings for the division of avg; and
/// a rounding to the type of the data if it is narrower.
std::size_t count_wrong(const Expectation& expectation, const void* result);

}  // namespace hocket::perf
