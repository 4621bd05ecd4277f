#include "transport/message_matcher.h"

#include <algorithm>
#include <string>

#include "base/assert.h"
#include "base/checked.h"
#include "base/copy.h"

namespace hocket::internal {
namespace {

// Transfer::state.
constexpr std::uint8_t cts_sent = 1;        // recv: a CTS was sent
constexpr std::uint8_t rts_seen = 2;        // recv: an RTS has arrived
constexpr std::uint8_t needs_rts = 4;       // recv: the sender has sent an RTS; wait for it too
constexpr std::uint8_t started = 8;         // recv: the first data frame has arrived
constexpr std::uint8_t eager_message = 16;  // both: the message is eager
constexpr std::uint8_t rts_sent = 32;       // send: an RTS was sent
constexpr std::uint8_t cts_seen = 64;       // send: a CTS has arrived

const Signature no_signature;

const Signature& signature_of(const Transfer& transfer) {
  return transfer.signature != nullptr ? *transfer.signature : no_signature;
}

std::string bytes_text(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

void MessageMatcher::Queue::push(Transfer& transfer) {
  transfer.next = nullptr;
  (tail != nullptr ? tail->next : head) = &transfer;
  tail = &transfer;
}

Transfer* MessageMatcher::Queue::pop() {
  Transfer* const transfer = head;
  if (transfer == nullptr) return nullptr;
  head = transfer->next;
  if (head == nullptr) tail = nullptr;
  transfer->next = nullptr;
  return transfer;
}

MessageMatcher::MessageMatcher(int rank, int peer, std::uint64_t comm_id,
                               const MatcherOptions& options, UnexpectedPool& pool,
                               CollectiveSequenceCheck& sequence_check)
    : rank_(rank),
      peer_(peer),
      comm_id_(comm_id),
      options_(options),
      pool_(pool),
      sequence_check_(sequence_check) {}

MessageMatcher::~MessageMatcher() {
  forget_unexpected();
  sequence_check_.remove(*this);
}

bool MessageMatcher::start(Transfer& transfer) {
  HOCKET_ASSERT(transfer.peer == peer_, "a transfer goes over the link to its peer");
  HOCKET_ASSERT(transfer.bytes == 0 || transfer.data != nullptr, "a message of bytes has memory");
  transfer.done = false;
  transfer.moved = 0;
  transfer.framed_bytes = 0;
  transfer.state = 0;
  transfer.next = nullptr;
  if (!transfer.status.ok()) transfer.status = Status();
  ++open_;
  return !ended();
}

void MessageMatcher::finish(Transfer& transfer, const Status& status) {
  HOCKET_ASSERT(!transfer.done && open_ > 0, "a transfer ends once");
  if (!status.ok()) {
    transfer.status = status.in_operation(transfer.key.p2p ? 0 : transfer.key.sequence);
  }
  --open_;
  transfer.done = true;  // the caller may free it from here on
}

// ---- Posting

std::size_t MessageMatcher::review_unexpected() {
  std::size_t compared = 0;
  for (const UnexpectedMessage* unexpected = by_sequence_.first();
       unexpected != nullptr && sequence_check_.has_begun(unexpected->key.sequence);
       unexpected = unexpected->after, ++compared) {
    check_sequence(*unexpected);
  }
  check_peer_call();
  return compared;
}

/// Compares the collective in which the peer waits with that of this rank. Returns true if this
/// rank has not begun it yet.
bool MessageMatcher::check_peer_call() {
  if (call_in_.sequence == 0) return false;
  const MessageKey key{.sequence = call_in_.sequence};
  if (!sequence_check_.has_begun(key.sequence)) return true;
  if (sequence_check_.failure() == nullptr &&
      sequence_check_.is_another_call(key.sequence, call_in_.signature)) {
    sequence_check_.fail(mismatch(key, sequence_check_.mine(key), 0, call_in_.signature, 0));
  }
  call_in_.sequence = 0;
  return false;
}

void MessageMatcher::tell_call(std::uint64_t sequence, const Signature& signature) {
  if (ended()) return;
  call_out_ = {sequence, signature};
  call_due_ = true;
}

void MessageMatcher::check_sequence(const UnexpectedMessage& unexpected) {
  const MessageKey& key = unexpected.key;
  if (sequence_check_.failure() != nullptr ||
      !sequence_check_.is_out_of_sequence(key, unexpected.signature))
    return;
  sequence_check_.fail(mismatch(key, sequence_check_.mine(key), unexpected.total,
                                unexpected.signature, unexpected.total));
}

void MessageMatcher::note_unexpected(UnexpectedMessage& unexpected) {
  if (unexpected.key.p2p) return;
  by_sequence_.add(unexpected);
  sequence_check_.add(*this);
  check_sequence(unexpected);
}

/// Frees a message that is in no table any more.
void MessageMatcher::forget(UnexpectedMessage& unexpected) {
  if (!unexpected.key.p2p) by_sequence_.remove(unexpected);
  pool_.give(&unexpected);
}

void MessageMatcher::post_send(Transfer& transfer) {
  if (!start(transfer)) return finish(transfer, ended_);
  const UnexpectedMessage* const ready = unmatched_cts_.find(transfer.key);
  if (ready != nullptr && !agrees(transfer, ready->signature, ready->total)) {
    send_nack(transfer, ready->signature, ready->total);
    return finish(transfer, ended_);
  }
  if (ready != nullptr) {
    forget(*unmatched_cts_.take(transfer.key));
    transfer.state = cts_seen;
    return sends_location(transfer) ? send_location(transfer) : bulk_.push(transfer);
  }
  const std::uint64_t unreturned = eager_sent_ - eager_credited_;
  const bool locates = transfer.prefers_location && sends_location(transfer);
  if (!locates && transfer.bytes <= options_.eager_bytes &&
      unreturned + charge(transfer.bytes) <= options_.window_bytes) {
    eager_sent_ += charge(transfer.bytes);
    transfer.state = eager_message;
    return eager_.push(transfer);
  }
  if (awaiting_cts_.find(transfer.key) != nullptr || awaiting_fin_.find(transfer.key) != nullptr) {
    return finish(transfer, internal_error("a send was posted twice under one key"));
  }
  if (sends_location(transfer)) return send_location(transfer);
  transfer.state = rts_sent;
  queue_control(FrameKind::rts, transfer);
  awaiting_cts_.insert(transfer);
}

/// The transfer ends when the peer says that it has copied the message. It needs no CTS.
void MessageMatcher::send_location(Transfer& transfer) {
  queue_control(FrameKind::location, transfer);
  awaiting_fin_.insert(transfer);
}

void MessageMatcher::post_recv(Transfer& transfer) {
  const bool open = start(transfer);
  if (UnexpectedMessage* const unexpected = unexpected_.find(transfer.key); unexpected != nullptr) {
    return take_unexpected(transfer, *unexpected);
  }
  if (!open) return finish(transfer, ended_);
  if (recvs_.find(transfer.key) != nullptr) {
    return finish(transfer, internal_error("a receive was posted twice under one key"));
  }
  recvs_.insert(transfer);
  if (transfer.bytes > options_.eager_bytes) {
    transfer.state |= cts_sent;
    queue_control(FrameKind::cts, transfer);
  }
}

void MessageMatcher::take_unexpected(Transfer& recv, UnexpectedMessage& unexpected) {
  if (unexpected.recv != nullptr) {
    return finish(recv, internal_error("a receive was posted twice under one key"));
  }
  if (!agrees(recv, unexpected.signature, unexpected.total)) {
    const Status why =
        mismatch(recv.key, signature_of(recv), recv.bytes, unexpected.signature, unexpected.total);
    if (!ended()) send_nack(recv, unexpected.signature, unexpected.total);
    return finish(recv, why);
  }
  if (unexpected.eager && unexpected.arrived < unexpected.total) {
    unexpected.recv = &recv;
    return;
  }
  unexpected_.take(unexpected.key);
  recv.sender_scalar = unexpected.signature.scalar();
  if (unexpected.located && !ended()) {
    recv.location = unexpected.location;
    forget(unexpected);
    return located_.push(recv);
  }
  if (unexpected.eager) {
    plain_copy(recv.data, unexpected.data, unexpected.total);
    recv.moved = unexpected.total;
    consumed(unexpected.total);
    forget(unexpected);
    return finish(recv, Status());
  }
  forget(unexpected);
  if (ended()) return finish(recv, ended_);
  recv.state = rts_seen | cts_sent;
  recvs_.insert(recv);
  queue_control(FrameKind::cts, recv);
}

// ---- Outgoing

struct MessageMatcher::Fields {
  FrameKind kind;
  MessageKey key;
  const Signature& signature;
  std::uint64_t total = 0, offset = 0;
  std::uint32_t length = 0, payload_check = 0;
  std::uint16_t flags = 0;  // but p2p
};

/// Compares and writes field by field: to load several fields as a word would wait for the stores
/// to the single fields.
[[gnu::always_inline]] inline void MessageMatcher::set_header(const Fields& fields,
                                                              OutFrame& frame) const {
  FrameHeader& header = frame.header;
  const MessageKey& key = fields.key;
  const auto flags = static_cast<std::uint16_t>(fields.flags | (key.p2p ? frame_flag::p2p : 0));
  frame.repeats = frame.is_set && header.kind == fields.kind && header.flags == flags &&
                  header.index == key.index && header.tag == key.tag &&
                  header.offset == fields.offset && header.total == fields.total &&
                  header.length == fields.length && header.payload_check == fields.payload_check &&
                  header.signature.differs_in_sequence_only(fields.signature);
  header.sequence = key.sequence;
  if (frame.repeats) [[likely]] {
    header.signature.sequence = fields.signature.sequence;
    return;
  }
  frame.is_set = true;
  header.magic = frame_magic;
  header.version = frame_version;
  header.kind = fields.kind;
  header.flags = flags;
  header.comm_id = comm_id_;
  header.index = key.index;
  header.source = static_cast<std::uint32_t>(rank_);
  header.offset = fields.offset;
  header.total = fields.total;
  header.signature = fields.signature;
  header.length = fields.length;
  header.tag = key.tag;
  header.payload_check = fields.payload_check;
}

void MessageMatcher::queue_control(FrameKind kind, const Transfer& transfer) {
  // next_control() clears the list when all its frames are sent. If that never happens, remove the
  // frames that are sent here.
  if (controls_head_ > 64 && 2 * controls_head_ > controls_.size()) {
    controls_.erase(controls_.begin(),
                    controls_.begin() + static_cast<std::ptrdiff_t>(controls_head_));
    controls_head_ = 0;
  }
  controls_.push_back(
      {kind, transfer.key, signature_of(transfer), transfer.bytes, transfer.location});
}

void MessageMatcher::next_control(OutFrame& frame) {
  HOCKET_ASSERT(has_controls(), "the caller has checked has_controls()");
  frame.transfer = nullptr;
  frame.payload = nullptr;
  if (nack_due_) {
    nack_due_ = false;
    frame = nack_frame_;
    frame.repeats = false;
  } else if (controls_head_ < controls_.size()) {
    const Control& control = controls_[controls_head_++];
    std::uint32_t length = 0;
    if (control.kind == FrameKind::location) {
      location_out_ = control.location;
      frame.payload = reinterpret_cast<const std::byte*>(&location_out_);
      length = sizeof location_out_;
    }
    set_header({.kind = control.kind,
                .key = control.key,
                .signature = control.signature,
                .total = control.total,
                .length = length},
               frame);
    if (control.kind == FrameKind::fin) frame.transfer = awaiting_room_.pop();
    if (controls_head_ == controls_.size()) {
      controls_.clear();
      controls_head_ = 0;
    }
  } else if (credit_due_) {
    credit_due_ = false;
    credit_told_ = eager_consumed_;
    set_header(
        {.kind = FrameKind::credit, .key = {}, .signature = no_signature, .total = eager_consumed_},
        frame);
  } else {
    call_due_ = false;
    set_header({.kind = FrameKind::call,
                .key = {.sequence = call_out_.sequence},
                .signature = call_out_.signature},
               frame);
  }
}

bool MessageMatcher::next_frame(Want want, std::size_t max_payload, OutFrame& frame) {
  if ((want & controls) && has_controls()) {
    next_control(frame);
    return true;
  }
  if (!has(want)) return false;
  Queue& queue = (want & eager) && !eager_.empty() ? eager_ : bulk_;
  Transfer* const transfer = queue.head;
  const std::size_t length =
      std::min({transfer->bytes - transfer->framed_bytes, options_.frame_bytes, max_payload});
  frame.transfer = transfer;
  frame.payload = transfer->data + transfer->framed_bytes;
  std::uint16_t flags = 0;
  if (transfer->state & eager_message) flags |= frame_flag::eager;
  if (transfer->state & rts_sent) flags |= frame_flag::rts_sent;
  if (options_.checksum) flags |= frame_flag::checked;
  set_header({.kind = FrameKind::data,
              .key = transfer->key,
              .signature = signature_of(*transfer),
              .total = transfer->bytes,
              .offset = transfer->framed_bytes,
              .length = static_cast<std::uint32_t>(length),
              .payload_check = options_.checksum ? crc32c(frame.payload, length) : 0,
              .flags = flags},
             frame);
  transfer->framed_bytes += length;
  if (transfer->framed_bytes == transfer->bytes) queue.pop();
  return true;
}

void MessageMatcher::sent(Transfer& transfer, std::size_t bytes) {
  HOCKET_ASSERT(transfer.moved + bytes <= transfer.framed_bytes, "what was sent was framed before");
  transfer.moved += bytes;
  if (transfer.moved == transfer.bytes) finish(transfer, Status());
}

std::size_t MessageMatcher::bulk_bytes() const { return bulk_.empty() ? 0 : bulk_.head->bytes; }

OutFrame MessageMatcher::signal(FrameKind kind) const {
  OutFrame frame;
  set_header({.kind = kind, .key = {}, .signature = no_signature}, frame);
  return frame;
}

// ---- Incoming

Status MessageMatcher::violation(const std::string& what) const {
  return {Code::remote_error,
          "rank " + std::to_string(peer_) + " broke the protocol: it sent " + what +
              ". Check that all ranks use the same version of hocket, and the network between the "
              "hosts",
          peer_};
}

Status MessageMatcher::check(const FrameHeader& header) const {
  const char* const fault = fault_of(header, comm_id_, static_cast<std::uint32_t>(peer_));
  if (fault == nullptr) return {};
  const bool other_version = header.magic == frame_magic && header.version != frame_version;
  return violation(other_version
                       ? fault + (": version " + std::to_string(header.version)) +
                             ", where this process has version " + std::to_string(frame_version)
                       : fault);
}

Status MessageMatcher::accept(const FrameHeader& header, InFrame& frame) {
  HOCKET_RETURN_IF_ERROR(check(header));
  frame.header = header;
  return accept_checked(frame);
}

Status MessageMatcher::accept_checked(InFrame& frame) {
  const FrameHeader& header = frame.header;
  frame.data = nullptr;
  frame.recv = nullptr;
  frame.unexpected = nullptr;
  if (!(header.flags & frame_flag::p2p))
    latest_sequence_ = std::max(latest_sequence_, header.sequence);
  switch (header.kind) {
    case FrameKind::data:
      return accept_data(header, frame);
    case FrameKind::rts:
      return accept_rts(header);
    case FrameKind::cts:
      return accept_cts(header);
    case FrameKind::credit:
      if (header.total < eager_credited_ || header.total > eager_sent_) {
        return violation("a credit for more bytes than this rank has sent");
      }
      eager_credited_ = header.total;
      return {};
    case FrameKind::nack:
      frame.data = reinterpret_cast<std::byte*>(&nack_in_);
      return {};
    case FrameKind::location:
      if (!options_.maps) return violation("the location of a message over a link that maps none");
      frame.data = reinterpret_cast<std::byte*>(&location_in_);
      return {};
    case FrameKind::fin:
      return accept_fin(header);
    case FrameKind::refusal:
      return accept_refusal(header);
    case FrameKind::call:
      call_in_ = {header.sequence, header.signature};
      if (check_peer_call()) sequence_check_.add(*this);
      return {};
    case FrameKind::goodbye:
    case FrameKind::reading:
      return {};
  }
  return violation("a frame of an unknown kind");
}

Status MessageMatcher::accept_data(const FrameHeader& header, InFrame& frame) {
  const auto end = checked_add(header.offset, header.length);
  if (!end || *end > header.total) return violation("payload beyond the end of its message");
  if (header.length == 0 && header.total != 0) return violation("an empty piece of a message");
  Transfer* const recv = recvs_.find(key_of(header));
  return recv != nullptr ? accept_posted(header, *recv, frame) : accept_unexpected(header, frame);
}

Status MessageMatcher::accept_posted(const FrameHeader& header, Transfer& recv, InFrame& frame) {
  if (!agrees(recv, header.signature, header.total)) {
    send_nack(recv, header.signature, header.total);
    return {};
  }
  recv.sender_scalar = header.signature.scalar();
  const bool eager = (header.flags & frame_flag::eager) != 0;
  if (!(recv.state & started)) {
    recv.state |= started;
    if (eager) {
      recv.state |= eager_message;
      eager_arrived_ += charge(header.total);
    } else if (!(recv.state & cts_sent)) {
      return violation("payload of a rendezvous message before the CTS");
    }
    if (header.flags & frame_flag::rts_sent) recv.state |= needs_rts;
  } else if (eager != ((recv.state & eager_message) != 0)) {
    return violation("a message that is eager only in part");
  }
  // The frames never announce more bytes than the message has. So when all bytes have arrived, no
  // frame of the message is still to come.
  if (header.length > recv.bytes - recv.framed_bytes)
    return violation("more payload than its message has");
  recv.framed_bytes += header.length;
  frame.recv = &recv;
  frame.data = recv.data + header.offset;
  return {};
}

/// The location of a message has arrived.
Status MessageMatcher::accept_location(const FrameHeader& header) {
  Transfer* const recv = recvs_.find(key_of(header));
  if (recv == nullptr) {
    UnexpectedMessage* unexpected = nullptr;
    HOCKET_RETURN_IF_ERROR(remember(unexpected_, header, &unexpected));
    unexpected->located = true;
    unexpected->location = location_in_;
    return {};
  }
  if (!agrees(*recv, header.signature, header.total)) {
    send_nack(*recv, header.signature, header.total);
    return {};
  }
  if (recv->state & (started | rts_seen)) return violation("a message in two ways");
  recvs_.take(recv->key);
  recv->sender_scalar = header.signature.scalar();
  recv->location = location_in_;
  located_.push(*recv);
  return {};
}

Status MessageMatcher::accept_fin(const FrameHeader& header) {
  Transfer* const send = awaiting_fin_.take(key_of(header));
  if (send == nullptr) return violation("that it has copied a message that is not under way");
  send->moved = send->bytes;
  finish(*send, Status());
  return {};
}

/// The receive ends when its FIN is in the link. If it ended before, this rank could leave the
/// operation while the link has no room, and the sender would wait until this rank's next call.
void MessageMatcher::located_complete() {
  Transfer* const recv = located_.pop();
  HOCKET_ASSERT(recv->moved == recv->bytes, "a message is complete when all of it is copied");
  recv->framed_bytes = recv->bytes;
  queue_control(FrameKind::fin, *recv);
  awaiting_room_.push(*recv);
}

/// The payload may follow at once: the receive is posted again.
void MessageMatcher::located_refused() {
  Transfer& recv = *located_.pop();
  recv.moved = recv.framed_bytes = 0;
  recv.state = cts_sent;
  recvs_.insert(recv);
  queue_control(FrameKind::refusal, recv);
}

Status MessageMatcher::accept_refusal(const FrameHeader& header) {
  Transfer* const send = awaiting_fin_.take(key_of(header));
  if (send == nullptr) return violation("that it cannot copy a message that is not under way");
  bulk_.push(*send);
  return {};
}

Status MessageMatcher::accept_unexpected(const FrameHeader& header, InFrame& frame) {
  const MessageKey key = key_of(header);
  UnexpectedMessage* unexpected = unexpected_.find(key);
  if (unexpected == nullptr) {
    if (!(header.flags & frame_flag::eager)) {
      return violation("payload of a rendezvous message before the CTS");
    }
    if (header.total > options_.eager_bytes ||
        eager_arrived_ - eager_consumed_ + charge(header.total) > options_.window_bytes) {
      return violation("more eager payload than its window allows");
    }
    unexpected = pool_.take(header.total);
    if (unexpected == nullptr)
      return {Code::system_error,
              "no memory to buffer an unexpected message: this process has reached a memory limit"};
    eager_arrived_ += charge(header.total);
    unexpected->key = key;
    unexpected->signature = header.signature;
    unexpected->total = header.total;
    unexpected->eager = true;
    note_unexpected(*unexpected);
    unexpected_.insert(*unexpected);
  } else if (!unexpected->eager || unexpected->total != header.total ||
             header.length > unexpected->total - unexpected->announced || unexpected->total == 0) {
    return violation("more payload than its message has");
  }
  unexpected->announced += header.length;
  frame.unexpected = unexpected;
  frame.data = unexpected->data + header.offset;
  return {};
}

Status MessageMatcher::remember(KeyTable<UnexpectedMessage>& table, const FrameHeader& header,
                                UnexpectedMessage** entry) {
  if (table.find(key_of(header)) != nullptr) return violation("the same control frame twice");
  if (unexpected_.size() + unmatched_cts_.size() >= options_.max_unexpected_entries) {
    return violation("more RTS and CTS frames than allowed");
  }
  UnexpectedMessage* const unexpected = pool_.take(0);
  if (unexpected == nullptr)
    return {
        Code::system_error,
        "no memory for an entry of an unexpected message: this process has reached a memory limit"};
  unexpected->key = key_of(header);
  unexpected->signature = header.signature;
  unexpected->total = header.total;
  table.insert(*unexpected);
  note_unexpected(*unexpected);
  if (entry != nullptr) *entry = unexpected;
  return {};
}

Status MessageMatcher::accept_rts(const FrameHeader& header) {
  Transfer* const recv = recvs_.find(key_of(header));
  if (recv == nullptr) return remember(unexpected_, header);
  if (!agrees(*recv, header.signature, header.total)) {
    send_nack(*recv, header.signature, header.total);
    return {};
  }
  if (recv->state & (rts_seen | eager_message))
    return violation("an RTS for a message that it has sent already");
  recv->state |= rts_seen;
  if (!(recv->state & cts_sent)) {
    recv->state |= cts_sent;
    queue_control(FrameKind::cts, *recv);
  } else if ((recv->state & started) && recv->moved == recv->bytes) {
    finish_recv(*recv);
  }
  return {};
}

Status MessageMatcher::accept_cts(const FrameHeader& header) {
  Transfer* const send = awaiting_cts_.find(key_of(header));
  Transfer* const located = send == nullptr ? awaiting_fin_.find(key_of(header)) : nullptr;
  if (send == nullptr && located == nullptr) return remember(unmatched_cts_, header);
  Transfer& transfer = send != nullptr ? *send : *located;
  if (!agrees(transfer, header.signature, header.total)) {
    send_nack(transfer, header.signature, header.total);
    return {};
  }
  if (transfer.state & cts_seen) return violation("the same control frame twice");
  transfer.state |= cts_seen;
  if (located != nullptr) return {};  // the receive was posted before the location arrived
  awaiting_cts_.take(transfer.key);
  bulk_.push(transfer);
  return {};
}

Status MessageMatcher::payload_complete(const InFrame& frame) {
  const FrameHeader& header = frame.header;
  if ((header.flags & frame_flag::checked) && frame.data != nullptr &&
      crc32c(frame.data, header.length) != header.payload_check) {
    return {Code::remote_error,
            "payload from rank " + std::to_string(peer_) +
                " arrived damaged: its checksum (CRC32C) is wrong. Check the network between the "
                "two hosts",
            peer_};
  }
  if (frame.recv != nullptr) {
    Transfer& recv = *frame.recv;
    recv.moved += header.length;
    if (recv.moved == recv.bytes && (!(recv.state & needs_rts) || (recv.state & rts_seen))) {
      finish_recv(recv);
    }
  } else if (frame.unexpected != nullptr) {
    UnexpectedMessage& unexpected = *frame.unexpected;
    unexpected.arrived += header.length;
    if (unexpected.arrived == unexpected.total && unexpected.recv != nullptr) {
      Transfer& recv = *unexpected.recv;
      unexpected.recv = nullptr;
      take_unexpected(recv, unexpected);
    }
  } else if (header.kind == FrameKind::location) {
    return accept_location(header);
  } else if (header.kind == FrameKind::nack) {
    end(mismatch(key_of(header), nack_in_.signature, nack_in_.total, header.signature,
                 header.total));
  }
  return {};
}

void MessageMatcher::finish_recv(Transfer& recv) {
  HOCKET_ASSERT(recv.moved == recv.bytes, "a receive ends with its last byte");
  recvs_.take(recv.key);
  if (recv.state & eager_message) consumed(recv.bytes);
  finish(recv, Status());
}

void MessageMatcher::consumed(std::uint64_t bytes) {
  eager_consumed_ += charge(bytes);
  if (eager_consumed_ - credit_told_ >= options_.window_bytes / 4 && !ended()) credit_due_ = true;
}

// ---- Agreement

bool MessageMatcher::agrees(const Transfer& transfer, const Signature& theirs,
                            std::uint64_t total) const {
  const Signature& mine = signature_of(transfer);
  if (transfer.bytes != total) return false;
  // A send pairs with a receive.
  if (transfer.key.p2p) return mine.count == theirs.count && mine.dtype == theirs.dtype;
  return mine.same_call(theirs);
}

Status MessageMatcher::mismatch(const MessageKey& key, const Signature& mine,
                                std::uint64_t my_bytes, const Signature& theirs,
                                std::uint64_t their_bytes) const {
  std::string text = "rank " + std::to_string(peer_) + " called " + describe(theirs) +
                     " where rank " + std::to_string(rank_) + " called " + describe(mine) +
                     hidden_difference(mine, theirs);
  if (my_bytes != their_bytes) {
    text += ": a message of " + bytes_text(their_bytes) + " there, of " + bytes_text(my_bytes) +
            " here";
  }
  text += key.p2p ? ". A send and its receive must agree in count and type"
                  : ". All ranks must make the same calls in the same order";
  Status::Detail detail;
  detail.code = Code::mismatch;
  detail.message = std::move(text);
  detail.culprit = peer_;
  detail.sequence = key.p2p ? 0 : key.sequence;
  return Status(std::move(detail));
}

void MessageMatcher::send_nack(const Transfer& transfer, const Signature& theirs,
                               std::uint64_t total) {
  const Signature mine = signature_of(transfer);
  const MessageKey key = transfer.key;
  const std::uint64_t my_bytes = transfer.bytes;
  nack_out_ = {theirs, total};
  const bool checked = options_.checksum;
  set_header({.kind = FrameKind::nack,
              .key = key,
              .signature = mine,
              .total = my_bytes,
              .length = sizeof nack_out_,
              .payload_check = checked ? crc32c(&nack_out_, sizeof nack_out_) : 0,
              .flags = checked ? frame_flag::checked : std::uint16_t{0}},
             nack_frame_);
  nack_frame_.payload = reinterpret_cast<const std::byte*>(&nack_out_);
  end(mismatch(key, mine, my_bytes, theirs, total));
  nack_due_ = true;
}

// ---- Ends

void MessageMatcher::abandon(Transfer& transfer) {
  if (!transfer.done) finish(transfer, ended_);
}

void MessageMatcher::end_transfers(const Status& why) {
  ended_ = why;
  controls_.clear();
  controls_head_ = 0;
  credit_due_ = false;
  nack_due_ = false;
  call_due_ = false;
  const auto finish_with_why = [&](Transfer& transfer) { finish(transfer, why); };
  recvs_.drain(finish_with_why);
  awaiting_cts_.drain(finish_with_why);
  awaiting_fin_.drain(finish_with_why);
  // If frames of a send are still in the link, the link calls abandon() for it right after this.
  while (Transfer* transfer = eager_.pop()) finish(*transfer, why);
  while (Transfer* transfer = bulk_.pop()) finish(*transfer, why);
  while (Transfer* transfer = located_.pop()) finish(*transfer, why);
  while (Transfer* transfer = awaiting_room_.pop()) finish(*transfer, why);
}

void MessageMatcher::end(const Status& why) {
  if (ended() && unexpected_.size() == 0) return;
  end_transfers(ended() ? ended_ : why);
  forget_unexpected();
}

void MessageMatcher::leave(const Status& why) {
  if (ended()) return;
  end_transfers(why);
  KeyTable<UnexpectedMessage> complete;
  unexpected_.drain([&](UnexpectedMessage& unexpected) {
    if (unexpected.recv != nullptr) finish(*unexpected.recv, why);
    if (unexpected.eager && unexpected.arrived == unexpected.total) {
      complete.insert(unexpected);
    } else {
      forget(unexpected);
    }
  });
  std::swap(unexpected_, complete);
}

void MessageMatcher::forget_unexpected() {
  unexpected_.drain([&](UnexpectedMessage& unexpected) {
    if (unexpected.recv != nullptr) finish(*unexpected.recv, ended_);
    forget(unexpected);
  });
  unmatched_cts_.drain([&](UnexpectedMessage& unexpected) { forget(unexpected); });
}

}  // namespace hocket::internal
