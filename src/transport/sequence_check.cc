#include "transport/sequence_check.h"

#include <algorithm>

#include "base/assert.h"
#include "transport/message_matcher.h"

namespace hocket::internal {

std::size_t CollectiveSequenceCheck::begin(std::uint64_t sequence, const Signature& signature) {
  HOCKET_ASSERT(sequence > newest_, "collectives are numbered in the order of their begin");
  newest_ = sequence;
  latest_[sequence % latest_.size()] = {sequence, signature};
  std::size_t compared = 0;
  std::erase_if(links_to_review_, [&](MessageMatcher* link) {
    compared += link->review_unexpected();
    return !link->has_to_review();
  });
  return compared;
}

void CollectiveSequenceCheck::add(MessageMatcher& link) {
  std::vector<MessageMatcher*>& links = links_to_review_;
  if (std::find(links.begin(), links.end(), &link) == links.end()) links.push_back(&link);
}

void CollectiveSequenceCheck::remove(MessageMatcher& link) { std::erase(links_to_review_, &link); }

}  // namespace hocket::internal
