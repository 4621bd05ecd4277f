// Checks results. A rank generates the inputs of all ranks again (data.h), so the check does not
// depend on data that the library has moved.
#pragma once

#include <cstddef>
#include <vector>

#include "data.h"
#include "options.h"

namespace hocket::perf {

/// Elements of the blocks of a buffer that has one for each rank, and where they begin.
struct Blocks {
  std::vector<std::size_t> counts, starts;
};

struct Expectation {
  Collective collective = Collective::all_reduce;
  hocketDataType_t dtype = hocketFloat32;
  hocketRedOp_t op = hocketSum;
  int root = 0;
  int rank = 0;
  int ranks = 1;
  std::size_t count = 0;  // elements, as the call's count parameter
  /// Blocks have three halves of `count` and one half of it in turn; together they are as long as
  /// equal blocks. Of an odd number of blocks, the last has `count`.
  bool varying = false;
  Seed seed;  // the generating function sets seed.rank

  /// Where block `block` of rank `owner` begins; the end of the last block, if it is `ranks`.
  std::size_t block_start(int owner, int block) const {
    // In an all-to-all, block b of rank r is as long as block r of rank b, to or from which it
    // goes.
    const int first = collective == Collective::alltoall ? owner : 0;
    return edge(first + block) - edge(first);
  }
  std::size_t block_count(int owner, int block) const {
    return block_start(owner, block + 1) - block_start(owner, block);
  }
  /// The blocks of this rank, of its input or its output or both.
  Blocks blocks() const;
  /// Of the input or output of rank `owner` that has no parts.
  std::size_t own_count(int owner) const { return block_count(owner, owner); }
  /// Of the larger of input and output, whether this rank has that buffer or not.
  std::size_t whole_count() const {
    return has_parts(collective) ? count * static_cast<std::size_t>(ranks) : count;
  }
  std::size_t input_count(int owner) const {
    return has_input_parts(collective) ? whole_count() : own_count(owner);
  }
  std::size_t output_count() const {
    if (collective == Collective::bandwidth && sends_first()) return 0;
    const bool at_root = collective == Collective::reduce || collective == Collective::gather;
    if (at_root && rank != root) return 0;
    return has_output_parts(collective) ? whole_count() : own_count(rank);
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
  /// Where the elements that this rank receives begin in the input of rank `from`, or in the
  /// reduction.
  std::size_t input_part(int from) const {
    return has_input_parts(collective) ? block_start(from, rank) : 0;
  }

 private:
  /// Where block `block` begins, if the blocks of all ranks are repeated without end.
  std::size_t edge(int block) const {
    const bool after_long_one = varying && block % ranks % 2 == 1;
    return static_cast<std::size_t>(block) * count + (after_long_one ? count / 2 : 0);
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
