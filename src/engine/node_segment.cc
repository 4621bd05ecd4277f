#include "engine/node_segment.h"

#include "base/clock.h"

namespace hocket::internal {

Status NodeSegment::open(std::int64_t deadline_ms) {
  const DescriptorName name{membership_.comm_id(), 0};
  const std::size_t bytes = Board::bytes(membership_.local_ranks());
  UniqueFd fd;
  if (membership_.local_rank() == 0) {
    HOCKET_RETURN_IF_ERROR(make_memfd("hocket-board", bytes, &fd));
    if (membership_.local_ranks() > 1) HOCKET_RETURN_IF_ERROR(session_.offer(name, fd.get()));
  } else {
    const Nanos deadline = monotonic_now() + deadline_ms * nanos_per_ms;
    const int owner = membership_.local_members()[0];
    const Status fetched =
        session_.fetch(membership_.session_rank(owner), membership_.scope(0), name, deadline, &fd);
    HOCKET_RETURN_IF_ERROR(membership_.error_of_peer(owner, fetched));
  }
  HOCKET_RETURN_IF_ERROR(mappings_.of(fd.get(), &mapping_));
  if (mapping_->size() < bytes) return internal_error("the node's shared segment is too small");
  board_ = Board(mapping_->data(), membership_.local_ranks(), membership_.local_rank());
  return doorbells_.open(board_);
}

}  // namespace hocket::internal
