#include "transport/shm/transport.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/copy.h"

namespace hocket::internal {
namespace {

constexpr std::size_t poll_budget = 1 << 20;  // bytes per link, direction and poll

// Kinds of records.
constexpr std::uint8_t whole_header = 0;     // in the ring: the header of the frame, its payload
constexpr std::uint8_t repeated_header = 1;  // in the lead: a RepeatedHeader

/// The header of the frame before, but for these fields.
struct RepeatedHeader {
  std::uint64_t sequence;
  std::uint64_t call;  // signature.sequence
};
constexpr std::size_t lead_payload_bytes = Fifo::lead_bytes - sizeof(RepeatedHeader);

}  // namespace

ShmTransport::ShmTransport(const Board& board, std::vector<int> ranks_of, std::uint64_t comm_id,
                           std::function<void(int rank)> wake, const ShmOptions& options)
    : board_(board),
      ranks_of_(std::move(ranks_of)),
      wake_(std::move(wake)),
      options_(options),
      // At least 4 frames fit in a fifo, so that the writer can write while the reader reads.
      frame_bytes_(std::min(options.matcher.frame_bytes, board.fifo_bytes() / 4)) {
  const int self = board_.local_rank();
  const int largest = *std::max_element(ranks_of_.begin(), ranks_of_.end());
  link_of_rank_.assign(static_cast<std::size_t>(largest) + 1, -1);
  MatcherOptions matcher = options_.matcher;
  matcher.frame_bytes = frame_bytes_;
  matcher.maps = options.map != nullptr || options.read != nullptr;
  for (int local = 0; local < board_.local_ranks(); ++local) {
    if (local == self) continue;
    link_of_rank_[ranks_of_[local]] = static_cast<int>(links_.size());
    links_.push_back(std::make_unique<Link>(
        ranks_of_[self], ranks_of_[local], local, comm_id, matcher, pool_, sequence_check_,
        FifoWriter(board_.fifo(self, local), board_.fifo_bytes()),
        FifoReader(board_.fifo(local, self), board_.fifo_bytes())));
  }
}

ShmTransport::~ShmTransport() {
  best_effort([this] {
    if (active()) cancel({Code::aborted, "the transport was destroyed with transfers in flight"});
  });
}

int ShmTransport::local_of(int peer) const {
  if (peer < 0 || static_cast<std::size_t>(peer) >= link_of_rank_.size()) return -1;
  return link_of_rank_[peer];
}

void ShmTransport::ring(const Link& link) {
  if (board_.ring(link.local) && wake_) wake_(link.matcher.peer());
  watch_.published();
}

// ---- Posting

/// Returns null if the transfer has ended.
[[gnu::always_inline]] inline ShmTransport::Link* ShmTransport::begin(Transfer& transfer) {
  const int index = local_of(transfer.peer);
  if (cancelled_.ok() && index >= 0) [[likely]] {
    return links_[index].get();
  }
  transfer.status =
      !cancelled_.ok()
          ? cancelled_
          : invalid_argument("shm does not reach rank " + std::to_string(transfer.peer));
  transfer.moved = 0;
  transfer.done = true;
  return nullptr;
}

/// Called after a transfer was posted.
[[gnu::always_inline]] inline void ShmTransport::posted(Link& link, bool was_active) {
  close_if_ended(link);
  may_be_active_ = was_active || link.matcher.busy();
}

void ShmTransport::post_send(Transfer& transfer) {
  Link* const link = begin(transfer);
  if (link == nullptr) return;
  const bool was_active = std::exchange(may_be_active_, true);
  transfer.mappable &= options_.map != nullptr;
  transfer.readable &= !transfer.mappable && transfer.bytes > options_.matcher.eager_bytes &&
                       kernel_copies_.load(std::memory_order_relaxed);
  if (transfer.readable) transfer.location = {0, reinterpret_cast<std::uint64_t>(transfer.data)};
  link->matcher.post_send(transfer);
  write(*link);
  posted(*link, was_active);
}

void ShmTransport::post_recv(Transfer& transfer) {
  Link* const link = begin(transfer);
  if (link == nullptr) return;
  const bool was_active = std::exchange(may_be_active_, true);
  link->matcher.post_recv(transfer);
  if (link->matcher.has_frames()) write(*link);
  // An eager message is often in the fifo already.
  if (!transfer.done && transfer.bytes <= options_.matcher.eager_bytes) read(*link);
  posted(*link, was_active);
}

void ShmTransport::tell_call(int peer, std::uint64_t sequence, const Signature& call) {
  const int index = local_of(peer);
  if (!cancelled_.ok() || index < 0) return;
  Link& link = *links_[index];
  link.matcher.tell_call(sequence, call);
  if (link.matcher.has_frames()) write(link);
  may_be_active_ |= link.matcher.has_frames();
}

bool ShmTransport::is_active() const {
  may_be_active_ = std::any_of(links_.begin(), links_.end(),
                               [](const auto& link) { return link->matcher.busy(); });
  return may_be_active_;
}

// ---- Moving bytes

/// Writes link.out. In a loop of small messages all headers are alike: then only one cache line
/// travels for each.
[[gnu::always_inline]] inline void ShmTransport::put(Link& link) {
  OutFrame& frame = link.out;
  FrameHeader& header = frame.header;
  bool in_lead = false;
  if (frame.repeats) {
    const RepeatedHeader numbers{header.sequence, header.signature.sequence};
    std::memcpy(link.to.lead(), &numbers, sizeof numbers);
    in_lead = header.length <= lead_payload_bytes;
    if (in_lead && header.length > 0) {
      copy_few(link.to.lead() + sizeof numbers, frame.payload, header.length);
    }
  } else {
    seal(header);
    link.to.put(header);
  }
  if (!in_lead && header.length > 0) {
    link.to.put(frame.payload, header.length, non_temporal_.load(std::memory_order_relaxed));
  }
  link.to.publish(frame.repeats ? repeated_header : whole_header);
}

bool ShmTransport::write(Link& link) {
  std::size_t moved = 0;
  OutFrame& frame = link.out;
  while (moved < poll_budget && link.matcher.has_frames()) {
    // Write only whole frames, and wait for more room rather than send a small one.
    const std::size_t room = link.to.room(sizeof(FrameHeader) + frame_bytes_);
    if (link.to.broken()) {
      fail(link, link.matcher.violation("a read position beyond the end of its fifo's data"));
      break;
    }
    if (room < sizeof(FrameHeader) + frame_bytes_ / 2) break;
    if (!link.matcher.next_frame(MessageMatcher::any, room - sizeof(FrameHeader), frame)) break;
    put(link);
    moved += sizeof frame.header + frame.header.length;
    if (frame.transfer != nullptr) link.matcher.sent(*frame.transfer, frame.header.length);
  }
  if (moved > 0) ring(link);
  return moved > 0;
}

/// Reads the header of the next record.
Status ShmTransport::read_header(Link& link) {
  FrameHeader& header = link.frame.header;
  if (link.from.kind() == repeated_header) {
    if (!link.has_header) return link.matcher.violation("a header that repeats none");
    RepeatedHeader numbers;
    std::memcpy(&numbers, link.from.lead(), sizeof numbers);
    header.sequence = numbers.sequence;
    header.signature.sequence = numbers.call;
    return {};
  }
  if (link.from.kind() != whole_header)
    return link.matcher.violation("a record of an unknown kind");
  if (link.from.left() < sizeof header) return link.matcher.violation("half a frame header");
  link.from.get(&header);
  link.has_header = true;
  return link.matcher.check(header);
}

// Reads and handles a frame. Returns false if the link has ended.
bool ShmTransport::read_record(Link& link) {
  const FrameHeader& header = link.frame.header;
  Status status = read_header(link);
  if (status.ok()) status = link.matcher.accept_checked(link.frame);
  const bool in_lead = link.from.kind() == repeated_header && header.length <= lead_payload_bytes;
  if (status.ok() && !link.matcher.ended() && !in_lead && header.length > link.from.left()) {
    status = link.matcher.violation("half a frame");
  }
  if (!status.ok()) {
    fail(link, status);
    return false;
  }
  if (link.matcher.ended()) return false;
  if (in_lead && header.length > 0) {
    copy_few(link.frame.data, link.from.lead() + sizeof(RepeatedHeader), header.length);
  } else if (header.length > 0) {
    link.from.get(link.frame.data, header.length);
  }
  link.from.release();
  if (Status complete = link.matcher.payload_complete(link.frame); !complete.ok()) {
    fail(link, complete);
    return false;
  }
  if (header.kind == FrameKind::goodbye) {
    const int peer = link.matcher.peer();
    const Status why(
        Code::remote_error,
        "rank " + std::to_string(peer) +
            " has left the communicator (it finalized or destroyed it), so this "
            "operation cannot end: all ranks must make the same calls before they leave",
        peer);
    link.matcher.leave(why.on_link("shm"));
  }
  return !link.matcher.ended();
}

bool ShmTransport::read(Link& link) {
  if (link.receive_closed) return false;
  std::size_t moved = 0;
  while (moved < poll_budget) {
    if (!link.from.ready()) break;
    moved += sizeof(FrameHeader);
    if (!read_record(link)) {
      link.receive_closed = true;
      break;
    }
    moved += link.frame.header.length;
    // If no transfer is open, a frame is of a later operation: leave it in the fifo, from where a
    // receive that is posted by then takes it without a buffer in between. The next poll takes one
    // more, so a sender never waits for this rank to post a receive.
    if (link.matcher.open() == 0) break;
  }
  if (link.from.broken()) {
    fail(link, link.matcher.violation("an impossible word of a cell of its fifo"));
  }
  if (link.from.writer_may_go_on()) ring(link);
  return moved > 0;
}

/// Copies the next part of a message from the memory of its sender. *copied: so many bytes; 0: none
/// now; less than 0: the kernel refuses.
Status ShmTransport::copy_part(const Link& link, const Transfer& recv, std::ptrdiff_t* copied) {
  const int peer = link.matcher.peer();
  const std::size_t bytes = std::min(recv.bytes - recv.moved, poll_budget);
  std::byte* const to = recv.data + recv.moved;
  *copied = 0;
  if (recv.location.region == 0) {
    const std::uint64_t from = recv.location.offset + recv.moved;
    *copied = options_.read == nullptr ? -1 : options_.read(peer, from, bytes, to);
    return {};
  }
  if (options_.map == nullptr) return link.matcher.violation("a location in memory of no region");
  std::byte* from = nullptr;
  // Each time: between two polls the mapping may end.
  const Status status =
      options_.map(peer, recv.location, recv.bytes, recv.key.p2p ? 0 : recv.key.sequence, &from);
  if (status.code() == Code::in_progress) return {};
  if (!status.ok()) return status;
  if (recv.non_temporal) {
    stream_copy(to, from + recv.moved, bytes);
  } else {
    plain_copy(to, from + recv.moved, bytes);
  }
  *copied = static_cast<std::ptrdiff_t>(bytes);
  return {};
}

bool ShmTransport::copy_located(Link& link) {
  Transfer& recv = *link.matcher.next_located();
  const int peer = link.matcher.peer();
  std::ptrdiff_t copied = 0;
  Status status = copy_part(link, recv, &copied);
  if (status.ok() && copied == 0) return false;
  if (copied > 0) recv.moved += static_cast<std::size_t>(copied);
  if (status.ok() && link.from.is_closed()) {
    // The sender has sent the reason before, if it concerns this link.
    while (!link.matcher.ended() && read(link)) {
    }
    if (link.matcher.ended()) return true;
    status = {Code::remote_error,
              "rank " + std::to_string(peer) +
                  " ended its operations with an error while this rank copied a message from its "
                  "memory",
              peer};
  }
  if (!status.ok()) {
    fail(link, status);
  } else if (copied < 0) {
    link.matcher.located_refused();
  } else if (recv.moved == recv.bytes) {
    link.matcher.located_complete();
  }
  return true;
}

bool ShmTransport::poll() {
  if (!cancelled_.ok()) return false;
  bool moved = false;
  for (const std::unique_ptr<Link>& link : links_) {
    moved |= read(*link);
    if (link->matcher.next_located() != nullptr) moved |= copy_located(*link);
    if (link->matcher.has_frames()) moved |= write(*link);
    close_if_ended(*link);
  }
  return moved;
}

// ---- Ends

void ShmTransport::fail(Link& link, const Status& why) {
  link.matcher.end(why.on_link("shm"));
  link.receive_closed = true;
  close_if_ended(link);
}

/// To be called before the owner of a transfer learns that the link has ended: from then on the
/// owner may write to memory that the peer still copies. A NACK goes first, because the peer looks
/// for the reason when it finds the fifo closed.
void ShmTransport::close_if_ended(Link& link) {
  if (!link.matcher.ended()) [[likely]]
    return;
  if (link.matcher.has_frames()) write(link);
  link.to.close();
}

void ShmTransport::cancel(const Status& why) {
  if (!cancelled_.ok()) return;
  cancelled_ = why;
  for (const std::unique_ptr<Link>& link : links_) fail(*link, why);
}

void ShmTransport::close() {
  if (!cancelled_.ok()) return;
  for (const std::unique_ptr<Link>& link : links_) {
    write(*link);
    if (link->matcher.ended() || link->to.room(sizeof(FrameHeader)) < sizeof(FrameHeader)) continue;
    link->out = link->matcher.signal(FrameKind::goodbye);
    put(*link);
    ring(*link);
  }
  cancel({Code::invalid_usage, "the transport is closed"});
}

}  // namespace hocket::internal
