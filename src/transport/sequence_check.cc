#include "transport/sequence_check.h"

#include <algorithm>

#include "base/assert.h"
#include "transport/message_matcher.h"

namespace hocket::internal {

void CollectiveSequenceCheck::begin(std::uint64_t sequence, const Signature& signature) {
  HOCKET_ASSERT(sequence > newest_, "collectives are numbered in the order of their begin");
  newest_ = sequence;
  latest_[sequence % latest_.size()] = {sequence, signature};
  std::erase_if(links_with_unexpected_,
                [](MessageMatcher* link) { return !link->review_unexpected(); });
}

void CollectiveSequenceCheck::add(MessageMatcher& link) {
  std::vector<MessageMatcher*>& links = links_with_unexpected_;
  if (std::find(links.begin(), links.end(), &link) == links.end()) links.push_back(&link);
}

void CollectiveSequenceCheck::remove(MessageMatcher& link) {
  std::erase(links_with_unexpected_, &link);
}

}  // namespace hocket::internal
