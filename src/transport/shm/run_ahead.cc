#include "transport/shm/run_ahead.h"

#include <algorithm>
#include <string>

#include "base/assert.h"

namespace hocket::internal {

/// If this rank is behind, the peer cannot overwrite its record of the collective that is compared
/// before this rank begins its next one. If this rank is ahead, the peer may catch up and overwrite
/// the record meanwhile, 128 collectives later: then the next look compares another collective.
RunAhead::Look RunAhead::look(std::uint64_t collective) {
  HOCKET_ASSERT(collective <= begun_, "a rank waits for peers at what it has reached itself");
  for (; peer_ < board_.local_ranks(); ++peer_) {
    if (peer_ == board_.local_rank()) continue;
    const std::uint64_t begun = board_.progress(peer_).begun.load(std::memory_order_acquire);
    if (begun < collective) return Look::waits;
    const std::uint64_t both = std::min(begun, begun_);
    const std::uint64_t fingerprint =
        board_.call(peer_, both).fingerprint.load(std::memory_order_acquire);
    const std::uint64_t now = board_.progress(peer_).begun.load(std::memory_order_relaxed);
    if (both < begun_ && required_by(now + 1) > both) return Look::waits;
    if (fingerprint != fingerprints_[both % fingerprints_.size()]) return Look::disagrees;
    least_ = std::min(least_, both);
  }
  all_at_ = std::min(least_, begun_);
  peer_ = 0;
  least_ = std::numeric_limits<std::uint64_t>::max();
  return Look::all_have_begun;
}

/// Both ranks still have their records of the first difference: a rank compares fingerprints before
/// it overwrites such a record, and goes no further then. Earlier records, which are equal, may
/// have been overwritten.
Status RunAhead::disagreement_with(int peer) const {
  const int own = board_.local_rank();
  const int rank_of_peer = ranks_of_node_[static_cast<std::size_t>(peer)];
  for (std::uint64_t at = std::max<std::uint64_t>(1, required_by(begun_)); at <= begun_; ++at) {
    const CallRecord& theirs = board_.call(peer, at);
    const std::uint64_t fingerprint = theirs.fingerprint.load(std::memory_order_relaxed);
    if (theirs.collective.load(std::memory_order_relaxed) != at ||
        fingerprint == fingerprints_[at % fingerprints_.size()]) {
      continue;
    }
    const Signature& mine = board_.call(own, at).signature;
    if (call_hash(theirs.signature) == call_hash(mine)) break;
    return internal::disagreement(rank_, mine, rank_of_peer, theirs.signature).in_operation(at);
  }
  return Status(Code::internal_error,
                "the shared memory of this communicator is damaged: what rank " +
                    std::to_string(rank_of_peer) + " wrote there for its " +
                    describe(board_.call(own, begun_).signature) +
                    " has been overwritten since. Look for code that writes outside its own "
                    "memory, in the processes of all ranks on this host",
                rank_of_peer)
      .in_operation(begun_);
}

}  // namespace hocket::internal
