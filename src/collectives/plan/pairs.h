// Lanes for plans in which every rank exchanges messages with every other rank. The pairs of ranks
// are coloured by the circle method of round-robin tournaments: two pairs that share a rank have
// different colours. Each colour has two lanes, one for each direction.
#pragma once

#include "collectives/plan/plan.h"

namespace hocket::internal::steps {

struct Pairs {
  int ranks;

  int colours() const { return ranks % 2 == 0 ? ranks - 1 : ranks; }
  int lanes() const { return 2 * colours(); }
  int colour(int a, int b) const {
    if (ranks % 2 == 1) return (a + b) % ranks;
    const int fixed = ranks - 1;  // the circle method moves all ranks but this one
    if (a == fixed) return 2 * b % fixed;
    if (b == fixed) return 2 * a % fixed;
    return (a + b) % fixed;
  }
  /// The lane of the messages from `from` to `to`, the same at both ends.
  int lane(int from, int to) const { return 2 * colour(from, to) + (from > to ? 1 : 0); }
};

/// The scratch block in which rank `mine` keeps the data of `peer`. There are ranks - 1 blocks.
constexpr std::uint32_t block_of_peer(int mine, int peer) { return peer < mine ? peer : peer - 1; }

}  // namespace hocket::internal::steps
