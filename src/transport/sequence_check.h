// Detects messages of a collective that this rank did not call, over all links of a communicator.
// Collectives run one after another, and all messages of a collective carry its signature. So a
// message shows a mismatch if it belongs to a collective that has ended here, or to the running
// collective but has another signature. Without this check such a message could stay unmatched for
// ever, because this rank may expect no message from that peer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "transport/transport.h"

namespace hocket::internal {

class MessageMatcher;

struct CollectiveSequenceCheck {
  struct Posted {
    std::uint64_t sequence = 0;  // in the keys of its messages
    Signature signature;
  };
  Posted newest, previous;
  Status failure;  // the first mismatch; the engine reads it
  // Links with messages of collectives for which this rank has posted nothing yet:
  std::vector<MessageMatcher*> links_with_unexpected;

  bool is_newer(const MessageKey& key) const { return !key.p2p && key.sequence > newest.sequence; }
  bool is_out_of_sequence(const MessageKey& key, const Signature& theirs) const {
    if (key.p2p || is_newer(key)) return false;
    return key.sequence < newest.sequence || !theirs.same_call(newest.signature);
  }
  const Signature& mine(const MessageKey& key) const {
    return key.sequence == previous.sequence ? previous.signature : newest.signature;
  }
};

}  // namespace hocket::internal
