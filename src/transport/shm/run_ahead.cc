#include "transport/shm/run_ahead.h"

#include <algorithm>

#include "base/assert.h"

namespace hocket::internal {

/// A peer that is ahead may write over the fingerprint that is compared here only kept operations
/// later. It is at most run_ahead_operations - 1 ahead of this rank, which compares one of at most
/// as many operations back: kept is enough for both.
RunAhead::Look RunAhead::look(std::uint64_t operation) {
  HOCKET_ASSERT(operation <= arrived_, "a rank waits for peers at what it has reached itself");
  static_assert(Progress::kept / 2 >= run_ahead_operations);
  for (; peer_ < board_.local_ranks(); ++peer_) {
    if (peer_ == board_.local_rank()) continue;
    const std::uint64_t arrived = board_.progress(peer_).arrived.load(std::memory_order_acquire);
    if (arrived < operation) return Look::waits;
    const std::uint64_t both = std::min(arrived, arrived_);
    if (!agrees(peer_, both)) return Look::disagrees;
    least_ = std::min(least_, both);
  }
  all_at_ = std::min(least_, arrived_);
  peer_ = 0;
  least_ = std::numeric_limits<std::uint64_t>::max();
  return Look::all_have_arrived;
}

/// The first difference is no further back than the memory of this rank and of the peer: whoever
/// would have gone on past it has found it before.
Status RunAhead::disagreement_with(int peer, std::uint64_t operation, const Signature& mine) const {
  const int rank_of_peer = ranks_of_node_[static_cast<std::size_t>(peer)];
  std::uint64_t at = operation >= run_ahead_operations ? operation - run_ahead_operations + 1 : 1;
  while (at < operation && agrees(peer, at)) ++at;
  const Signature& call = at == operation ? mine : board_.signature(board_.local_rank(), at);
  return board_.disagreement_with(peer, at, call, rank_, rank_of_peer).in_operation(collective(at));
}

}  // namespace hocket::internal
