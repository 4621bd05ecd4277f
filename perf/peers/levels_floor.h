// The floor between two hosts with the same number of ranks each: the time of a collective that
// consists of loads, stores and flags within the hosts (staged_floor.h) and of its bytes on TCP
// connections between them. There are no frames and no checks.
#pragma once

#include <string>

#include "backend.h"

namespace hocket::peers {

/// Host 0 has the first half of the ranks. The ranks of a host share the memory of the file
/// meeting_file, ".host" and the number of the host; each rank has a connection to the rank of the
/// other host that has the same place there (tcp_links.h). FLOOR_WAIT is as in
/// tcp_messages_floor.h. Returns false and sets *error if it cannot.
bool levels_floor_start(int rank, int ranks, const std::string& meeting_file, std::string* error);

/// All-reduce, all-gather, reduce-scatter with equal blocks, and broadcast. Each rank exchanges
/// its part with the other host, in segments of FLOOR_PIECE bytes; leaders: the first rank of each
/// host exchanges everything, at once. Returns false and sets *error if a connection ends, or for
/// another collective.
bool levels_floor_run(const Call& call, bool leaders, std::string* error);

}  // namespace hocket::peers
