// What each collective means: one row of a table. Builders, the verifier, the executor, the API and
// the texts of errors ask this table and do not distinguish collectives by name.
//
// The message of a collective consists of items. A rank sees an item as a block of its input or of
// its output:
//
//   Blocks::whole      a message that all ranks see alike. A plan may cut it: item b is block b
//   Blocks::own        one block, that of this rank: block 0 of rank r is item r
//   Blocks::per_rank   a block for each rank: block b is item b
//
// In an all-to-all every pair of ranks has an item of its own: block b of the input of rank q,
// which is block q of the output of rank b, is item q * ranks + b.
//
// Usually all blocks have one size. In a varying call (the v-variants of the API) each block has a
// count of its own. Then
//
//   all-gather, reduce-scatter     every rank knows the counts of all blocks, and gives the same
//                                  counts (shares_blocks)
//   gather, scatter, all-to-all    a rank knows only the counts of the blocks that it sends or
//                                  receives
#pragma once

#include <cstdint>

#include "base/types.h"

namespace hocket::internal {

enum class Blocks : std::uint8_t { none, whole, own, per_rank };

struct CollectiveRow {
  Collective collective;
  const char* name;
  bool rooted;         // one rank is the root
  bool reduces;        // the ranks' contributions to an item are folded
  Blocks input;        // the blocks of the input of a rank that has one
  Blocks output;       // the same for the output
  bool input_at_root;  // only the root has an input
  bool output_at_root;
};

inline constexpr CollectiveRow collective_table[] = {
    {Collective::all_reduce, "all-reduce", false, true, Blocks::whole, Blocks::whole, false, false},
    {Collective::broadcast, "broadcast", true, false, Blocks::whole, Blocks::whole, true, false},
    {Collective::all_gather, "all-gather", false, false, Blocks::own, Blocks::per_rank, false,
     false},
    {Collective::reduce_scatter, "reduce-scatter", false, true, Blocks::per_rank, Blocks::own,
     false, false},
    {Collective::barrier, "barrier", false, false, Blocks::none, Blocks::none, false, false},
    {Collective::send, "send", false, false, Blocks::whole, Blocks::none, false, false},
    {Collective::recv, "recv", false, false, Blocks::none, Blocks::whole, false, false},
    {Collective::reduce, "reduce", true, true, Blocks::whole, Blocks::whole, false, true},
    {Collective::gather, "gather", true, false, Blocks::own, Blocks::per_rank, false, true},
    {Collective::scatter, "scatter", true, false, Blocks::per_rank, Blocks::own, true, false},
    {Collective::all_to_all, "all-to-all", false, false, Blocks::per_rank, Blocks::per_rank, false,
     false},
};

constexpr const CollectiveRow& row_of(Collective collective) {
  return collective_table[static_cast<int>(collective)];
}

/// True if a varying call of the collective exists: some buffer has a block for each rank.
constexpr bool may_vary(const CollectiveRow& row) {
  return row.input == Blocks::per_rank || row.output == Blocks::per_rank;
}
/// True if in a varying call all ranks know the counts of all blocks, which are in one buffer.
constexpr bool shares_blocks(const CollectiveRow& row) {
  return !row.rooted && (row.input == Blocks::per_rank) != (row.output == Blocks::per_rank);
}
/// True if a rank sends a block of its input to each rank, as it is: scatter and all-to-all.
constexpr bool scatters_blocks(const CollectiveRow& row) {
  return row.input == Blocks::per_rank && !row.reduces;
}
/// True if a rank has an input. is_root: the rank is the root of a rooted collective.
constexpr bool has_input(const CollectiveRow& row, bool is_root) {
  return row.input != Blocks::none && (!row.input_at_root || is_root);
}
constexpr bool has_output(const CollectiveRow& row, bool is_root) {
  return row.output != Blocks::none && (!row.output_at_root || is_root);
}

}  // namespace hocket::internal
