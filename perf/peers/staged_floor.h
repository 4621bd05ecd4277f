// The floor through the memory that the ranks of a host share: a collective in pieces of
// node.piece_bytes, of which node_slots are under way (floor_node.h).
#pragma once

#include "backend.h"

namespace hocket::peers {

/// For the ranks of this host (node.ranks, node.me). An all-gather may have in == out + the start
/// of its own block.
void staged_floor_run(const Call& call);

}  // namespace hocket::peers
