// The floor of small messages over TCP between a power of two of ranks: the time of a collective
// that consists of its messages, each on the connection of its two ranks, and of its additions.
// There are no frames and no checks. Every message is in flight as soon as its bytes are known.
#pragma once

#include <string>

#include "backend.h"

namespace hocket::peers {

/// flat: the root of a rooted collective sends to or receives from each rank itself; tree: along
/// a binomial tree. Other collectives have one algorithm: recursive doubling and halving, and
/// messages between all pairs in an all-to-all.
enum class Shape { flat, tree };

/// Connects the ranks (tcp_links.h), of which there must be a power of two. FLOOR_WAIT=sleep: a
/// rank that has nothing to read sleeps in the kernel; otherwise it yields its core and looks
/// again. Returns false and sets *error if it cannot.
bool tcp_messages_floor_start(int rank, int ranks, const std::string& meeting_file, Shape shape,
                              std::string* error);

/// For equal blocks. Returns false and sets *error if a connection ends.
bool tcp_messages_floor_run(const Call& call, std::string* error);

}  // namespace hocket::peers
