// What the links of a communicator know together of its collectives. They run one after another,
// and all messages of one carry its signature: a message for one that is over here, or that is
// under way here under another signature, belongs to a call that this rank did not make. It may
// come from a peer that this rank expects nothing from, and would wait unread for ever.
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
    std::uint64_t sequence = 0;  // of its messages' keys
    Signature signature;
  };
  Posted newest, previous;
  Status failure;  // the first disagreement; the engine looks at it
  std::vector<MessageMatcher*>
      links_with_unexpected;  // links with messages of collectives that nobody has posted

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
