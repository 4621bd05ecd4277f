#include "engine/doorbells.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/descriptors.h"

namespace hocket::internal {
namespace {

void write_event(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof one);
}

}  // namespace

Doorbells::Doorbells(Session& session, const Membership& membership)
    : session_(session),
      membership_(membership),
      peer_events_(static_cast<std::size_t>(membership.local_ranks())) {}

Doorbells::~Doorbells() {
  for (const PeerEvent& event : peer_events_) {
    if (event.fetch != nullptr) session_.forget(event.fetch);
  }
}

Status Doorbells::open(const Board& board) {
  board_ = board;
  board_.take_barriers();
  event_fd_ = UniqueFd(open_with_room([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }));
  if (!event_fd_) return system_error("cannot make an eventfd");
  if (board_.local_ranks() > 1) {
    const auto number = 1 + static_cast<std::uint64_t>(board_.local_rank());
    HOCKET_RETURN_IF_ERROR(session_.offer({membership_.comm_id(), number}, event_fd_.get()));
  }
  return {};
}

void Doorbells::ring(int local_rank) {
  HOCKET_ASSERT(local_rank >= 0 && local_rank < board_.local_ranks(),
                "an open doorbell of the node");
  if (!board_.ring(local_rank)) return;
  if (local_rank == board_.local_rank()) return write_event(event_fd_.get());
  if (fetch_event(local_rank)) {
    write_event(peer_events_[static_cast<std::size_t>(local_rank)].fd.get());
  }
}

/// False: the eventfd of the peer is being fetched, and is written when it arrives. If that fails,
/// the peer is only late: a sleeping rank polls ten times a second in any case.
bool Doorbells::fetch_event(int local_rank) {
  PeerEvent& event = peer_events_[static_cast<std::size_t>(local_rank)];
  if (event.fd) return true;
  if (event.fetch == nullptr) {
    const int peer = membership_.local_members()[static_cast<std::size_t>(local_rank)];
    const DescriptorName name{membership_.comm_id(), 1 + static_cast<std::uint64_t>(local_rank)};
    const Status posted = session_.post_fetch(
        membership_.session_rank(peer), membership_.scope(0), name,
        [](const Fetch& fetch) { write_event(fetch.fd()); }, &event.fetch);
    if (!posted.ok()) return false;
  }
  if (!event.fetch->done()) return false;
  const Status taken = event.fetch->take(&event.fd);
  event.fetch.reset();
  return taken.ok();
}

}  // namespace hocket::internal
