// What each collective means: one row of a table. Builders, the verifier, the executor and the API
// ask this table and do not distinguish collectives by name.
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
  Blocks input;        // what a rank with an input has there
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

}  // namespace hocket::internal
