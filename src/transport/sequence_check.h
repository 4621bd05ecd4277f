// Detects messages of a collective that this rank did not call, over all links of a transport.
// Collectives run one after another, and all messages of a collective carry its signature. So a
// message shows a mismatch if it belongs to a collective that has ended on this rank, or to the
// running collective but has another signature. Without this check such a message could stay
// unmatched until the deadline, because this rank may expect no message from that peer.
//
// If two ranks both wait for a message of the other rank, neither sends one (each may be the root
// of its gather, for example). So a rank that has waited long in a collective sends its call to the
// ranks for which it waits (FrameKind::call), and they compare it with their own call.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "base/types.h"
#include "transport/transport.h"

namespace hocket::internal {

class MessageMatcher;

/// Each transport has one object for all of its links. It reports no mismatch before the first
/// begin().
class CollectiveSequenceCheck {
 public:
  CollectiveSequenceCheck() = default;
  CollectiveSequenceCheck(const CollectiveSequenceCheck&) = delete;
  CollectiveSequenceCheck& operator=(const CollectiveSequenceCheck&) = delete;

  /// To be called by Transport::begin_collective(): compares the unexpected messages of this and of
  /// earlier collectives with the collectives of this rank. Messages of later ones, of which a peer
  /// may have sent thousands, take no time. Returns the number of messages compared.
  std::size_t begin(std::uint64_t sequence, const Signature& signature);
  /// The first mismatch; null: there is none.
  const Status* failure() const { return failure_.ok() ? nullptr : &failure_; }

  // ---- For the links
  /// The link has an unexpected message of a collective, or knows in which call its peer waits.
  void add(MessageMatcher& link);
  void remove(MessageMatcher& link);
  bool is_out_of_sequence(const MessageKey& key, const Signature& theirs) const {
    if (key.p2p || key.sequence > newest_) return false;
    return key.sequence < newest_ || !theirs.same_call(mine(key));
  }
  /// True if this rank's collective of that number, if it is one of the latest, is another one.
  bool is_another_call(std::uint64_t sequence, const Signature& theirs) const {
    const Begun& mine = begun(sequence);
    return mine.sequence == sequence && !theirs.same_call(mine.signature);
  }
  bool has_begun(std::uint64_t sequence) const { return sequence <= newest_; }
  /// The call of this rank that an error about a message with this key quotes.
  const Signature& mine(const MessageKey& key) const {
    const Begun& same = begun(key.sequence);
    return (same.sequence == key.sequence ? same : begun(newest_)).signature;
  }
  void fail(const Status& mismatch) {
    if (failure_.ok()) failure_ = mismatch;
  }

 private:
  struct Begun {
    std::uint64_t sequence = 0;  // in the keys of its messages; 0: none
    Signature signature;
  };
  const Begun& begun(std::uint64_t sequence) const { return latest_[sequence % latest_.size()]; }

  std::uint64_t newest_ = 0;
  std::array<Begun, run_ahead_operations> latest_;  // by sequence
  Status failure_;
  std::vector<MessageMatcher*> links_to_review_;
};

}  // namespace hocket::internal
