#include "transport/matching.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.h"

namespace hocket {
namespace {

// Transfer::marks.
constexpr std::uint8_t ready_sent = 1;   // recv: the sender was told
constexpr std::uint8_t offer_seen = 2;   // recv
constexpr std::uint8_t needs_offer = 4;  // recv: an offer is still on its way
constexpr std::uint8_t started = 8;      // recv: a first frame came
constexpr std::uint8_t unasked = 16;     // both: the message is eager
constexpr std::uint8_t announced = 32;   // send: an offer was sent

const Signature no_signature;

const Signature& signature_of(const Transfer& transfer) {
  return transfer.signature != nullptr ? *transfer.signature : no_signature;
}

std::string bytes_text(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

void Matching::Queue::push(Transfer& transfer) {
  transfer.next = nullptr;
  (tail != nullptr ? tail->next : head) = &transfer;
  tail = &transfer;
}

Transfer* Matching::Queue::pop() {
  Transfer* const transfer = head;
  if (transfer == nullptr) return nullptr;
  head = transfer->next;
  if (head == nullptr) tail = nullptr;
  transfer->next = nullptr;
  return transfer;
}

Matching::Matching(int rank, int peer, std::uint64_t epoch, const MatchingOptions& options,
                   EarlyPool& pool)
    : rank_(rank), peer_(peer), epoch_(epoch), options_(options), pool_(pool) {}

Matching::~Matching() {
  forget_early();
  if (options_.order != nullptr) std::erase(options_.order->with_early, this);
}

bool Matching::start(Transfer& transfer) {
  transfer.done = false;
  transfer.moved = 0;
  transfer.cut = 0;
  transfer.marks = 0;
  transfer.next = nullptr;
  if (!transfer.status.ok()) transfer.status = Status();
  ++open_;
  return !ended();
}

void Matching::finish(Transfer& transfer, const Status& status) {
  if (!status.ok()) {
    transfer.status = status.in_operation(transfer.key.p2p ? 0 : transfer.key.sequence);
  }
  --open_;
  transfer.done = true;  // from here on it is the caller's again
}

// ---- Posting

void Matching::begin_collective(const Transfer& transfer) {
  CollectiveOrder& order = *options_.order;
  order.before_newest = order.newest;
  order.newest = {transfer.key.sequence, signature_of(transfer)};
  std::erase_if(order.with_early, [](Matching* link) { return !link->review_early(); });
}

bool Matching::review_early() {
  bool any = false;
  const auto look = [&](const Early& early) {
    any |= !early.key.p2p;
    look_for_astray(early);
  };
  early_.each(look);
  readies_.each(look);
  return any;
}

void Matching::look_for_astray(const Early& early) {
  CollectiveOrder& order = *options_.order;
  if (!order.failure.ok() || !order.is_astray(early.key, early.signature)) return;
  order.failure =
      mismatch(early.key, order.mine(early.key), early.total, early.signature, early.total);
}

void Matching::note_early(const Early& early) {
  if (options_.order == nullptr || early.key.p2p) return;
  std::vector<Matching*>& links = options_.order->with_early;
  if (std::find(links.begin(), links.end(), this) == links.end()) links.push_back(this);
  look_for_astray(early);
}

void Matching::post_send(Transfer& transfer) {
  if (options_.order != nullptr && options_.order->is_newer(transfer.key)) {
    begin_collective(transfer);
  }
  if (!start(transfer)) return finish(transfer, ended_);
  const Early* const ready = readies_.find(transfer.key);
  if (ready != nullptr && !agrees(transfer, ready->signature, ready->total)) {
    refuse(transfer, ready->signature, ready->total);
    return finish(transfer, ended_);
  }
  if (ready != nullptr) {
    pool_.give(readies_.take(transfer.key));
    return bulk_.push(transfer);
  }
  const std::uint64_t unreturned = eager_sent_ - eager_credited_;
  if (transfer.bytes <= options_.eager_bytes &&
      unreturned + charge(transfer.bytes) <= options_.window_bytes) {
    eager_sent_ += charge(transfer.bytes);
    transfer.marks = unasked;
    return eager_.push(transfer);
  }
  if (offered_.find(transfer.key) != nullptr) {
    return finish(transfer, internal_error("a send was posted twice under one key"));
  }
  transfer.marks = announced;
  tell(FrameKind::offer, transfer);
  offered_.insert(transfer);
}

void Matching::post_recv(Transfer& transfer) {
  if (options_.order != nullptr && options_.order->is_newer(transfer.key)) {
    begin_collective(transfer);
  }
  const bool open = start(transfer);
  if (Early* const early = early_.find(transfer.key); early != nullptr) {
    return take_early(transfer, *early);
  }
  if (!open) return finish(transfer, ended_);
  if (recvs_.find(transfer.key) != nullptr) {
    return finish(transfer, internal_error("a receive was posted twice under one key"));
  }
  recvs_.insert(transfer);
  if (transfer.bytes > options_.eager_bytes) {
    transfer.marks |= ready_sent;
    tell(FrameKind::ready, transfer);
  }
}

void Matching::take_early(Transfer& recv, Early& early) {
  if (early.recv != nullptr) {
    return finish(recv, internal_error("a receive was posted twice under one key"));
  }
  if (!agrees(recv, early.signature, early.total)) {
    const Status why =
        mismatch(recv.key, signature_of(recv), recv.bytes, early.signature, early.total);
    if (!ended()) refuse(recv, early.signature, early.total);
    return finish(recv, why);
  }
  if (early.eager && early.landed < early.total) {
    early.recv = &recv;
    return;
  }
  early_.take(early.key);
  if (early.eager) {
    if (early.total > 0) std::memcpy(recv.data, early.data, early.total);
    recv.moved = early.total;
    consumed(early.total);
    pool_.give(&early);
    return finish(recv, Status());
  }
  pool_.give(&early);
  if (ended()) return finish(recv, ended_);
  recv.marks = offer_seen | ready_sent;
  recvs_.insert(recv);
  tell(FrameKind::ready, recv);
}

// ---- Outgoing

FrameHeader Matching::header_of(FrameKind kind, const MessageKey& key, std::uint64_t total) const {
  FrameHeader header;
  header.kind = kind;
  header.lane = key.lane;
  header.epoch = epoch_;
  header.sequence = key.sequence;
  header.index = key.index;
  header.source = static_cast<std::uint32_t>(rank_);
  header.total = total;
  header.flags = key.p2p ? frame_flag::p2p : 0;
  return header;
}

void Matching::tell(FrameKind kind, const Transfer& transfer) {
  // The list is emptied whenever it runs dry; under steady pressure its dead front is cut off.
  if (controls_head_ > 64 && 2 * controls_head_ > controls_.size()) {
    controls_.erase(controls_.begin(),
                    controls_.begin() + static_cast<std::ptrdiff_t>(controls_head_));
    controls_head_ = 0;
  }
  controls_.push_back({kind, transfer.key, signature_of(transfer), transfer.bytes});
}

void Matching::next_control(OutFrame& frame) {
  frame.transfer = nullptr;
  frame.payload = nullptr;
  if (refusing_) {
    refusing_ = false;
    frame = refusal_frame_;
    return;
  }
  if (controls_head_ < controls_.size()) {
    const Control& control = controls_[controls_head_++];
    frame.header = header_of(control.kind, control.key, control.total);
    frame.header.signature = control.signature;
    if (controls_head_ == controls_.size()) {
      controls_.clear();
      controls_head_ = 0;
    }
  } else {
    credit_due_ = false;
    credit_told_ = eager_consumed_;
    frame.header = header_of(FrameKind::credit, {}, eager_consumed_);
  }
  seal(frame.header);
}

bool Matching::next_frame(Want want, std::size_t max_payload, OutFrame& frame) {
  if ((want & controls) && has_controls()) {
    next_control(frame);
    return true;
  }
  if (!has(want)) return false;
  Queue& queue = (want & eager) && !eager_.empty() ? eager_ : bulk_;
  Transfer* const transfer = queue.head;
  const std::size_t length =
      std::min({transfer->bytes - transfer->cut, options_.frame_bytes, max_payload});
  frame.transfer = transfer;
  frame.payload = transfer->data + transfer->cut;
  frame.header = header_of(FrameKind::data, transfer->key, transfer->bytes);
  FrameHeader& header = frame.header;
  header.signature = signature_of(*transfer);
  header.offset = transfer->cut;
  header.length = static_cast<std::uint32_t>(length);
  if (transfer->marks & unasked) header.flags |= frame_flag::eager;
  if (transfer->marks & announced) header.flags |= frame_flag::offered;
  if (options_.checksum) {
    header.flags |= frame_flag::checked;
    header.payload_check = crc32c(frame.payload, length);
  }
  seal(header);
  transfer->cut += length;
  if (transfer->cut == transfer->bytes) queue.pop();
  return true;
}

void Matching::sent(Transfer& transfer, std::size_t bytes) {
  transfer.moved += bytes;
  if (transfer.moved == transfer.bytes) finish(transfer, Status());
}

std::size_t Matching::bulk_bytes() const { return bulk_.empty() ? 0 : bulk_.head->bytes; }

OutFrame Matching::signal(FrameKind kind) const {
  OutFrame frame;
  frame.header = header_of(kind, {}, 0);
  seal(frame.header);
  return frame;
}

// ---- Incoming

Status Matching::violation(const char* what) const {
  return {Code::remote_error,
          "rank " + std::to_string(peer_) + " broke the protocol: it sent " + what +
              ". The link is damaged, or the other end is no hocket of this version",
          peer_};
}

Status Matching::accept(const FrameHeader& header, InFrame& frame) {
  frame.data = nullptr;
  frame.recv = nullptr;
  frame.early = nullptr;
  if (const char* fault = fault_of(header, epoch_, static_cast<std::uint32_t>(peer_))) {
    return violation(fault);
  }
  frame.header = header;
  if (!(header.flags & frame_flag::p2p)) heard_of_ = std::max(heard_of_, header.sequence);
  switch (header.kind) {
    case FrameKind::data:
      return accept_data(header, frame);
    case FrameKind::offer:
      return accept_offer(header);
    case FrameKind::ready:
      return accept_ready(header);
    case FrameKind::credit:
      if (header.total < eager_credited_ || header.total > eager_sent_) {
        return violation("a credit for bytes that it never got");
      }
      eager_credited_ = header.total;
      return {};
    case FrameKind::refuse:
      frame.data = reinterpret_cast<std::byte*>(&refusal_in_);
      return {};
    case FrameKind::bye:
    case FrameKind::hello:
      return {};
  }
  return violation("a frame of an unknown kind");
}

Status Matching::accept_data(const FrameHeader& header, InFrame& frame) {
  const auto end = checked_add(header.offset, header.length);
  if (!end || *end > header.total) return violation("payload beyond the end of its message");
  if (header.length == 0 && header.total != 0) return violation("an empty piece of a message");
  Transfer* const recv = recvs_.find(key_of(header));
  return recv != nullptr ? accept_posted(header, *recv, frame) : accept_early(header, frame);
}

Status Matching::accept_posted(const FrameHeader& header, Transfer& recv, InFrame& frame) {
  if (!agrees(recv, header.signature, header.total)) {
    refuse(recv, header.signature, header.total);
    return {};
  }
  const bool eager = (header.flags & frame_flag::eager) != 0;
  if (!(recv.marks & started)) {
    recv.marks |= started;
    if (eager) {
      recv.marks |= unasked;
      eager_arrived_ += charge(header.total);
    } else if (!(recv.marks & ready_sent)) {
      return violation("payload that must be asked for, unasked");
    }
    if (header.flags & frame_flag::offered) recv.marks |= needs_offer;
  } else if (eager != ((recv.marks & unasked) != 0)) {
    return violation("a message that is eager only in part");
  }
  // What is promised never exceeds the message, so nothing is under way any more when all landed.
  if (header.length > recv.bytes - recv.cut) return violation("more payload than its message has");
  recv.cut += header.length;
  frame.recv = &recv;
  frame.data = recv.data + header.offset;
  return {};
}

Status Matching::accept_early(const FrameHeader& header, InFrame& frame) {
  const MessageKey key = key_of(header);
  Early* early = early_.find(key);
  if (early == nullptr) {
    if (!(header.flags & frame_flag::eager)) {
      return violation("payload that must be asked for, unasked");
    }
    if (header.total > options_.eager_bytes ||
        eager_arrived_ - eager_consumed_ + charge(header.total) > options_.window_bytes) {
      return violation("more unasked payload than it may");
    }
    early = pool_.take(header.total);
    if (early == nullptr) return {Code::system_error, "no memory to buffer an early message"};
    eager_arrived_ += charge(header.total);
    early->key = key;
    early->signature = header.signature;
    early->total = header.total;
    early->eager = true;
    note_early(*early);
    early_.insert(*early);
  } else if (!early->eager || early->total != header.total ||
             header.length > early->total - early->promised || early->total == 0) {
    return violation("more payload than its message has");
  }
  early->promised += header.length;
  frame.early = early;
  frame.data = early->data + header.offset;
  return {};
}

Status Matching::remember(KeyTable<Early>& table, const FrameHeader& header) {
  if (table.find(key_of(header)) != nullptr) return violation("a control frame twice");
  if (early_.size() + readies_.size() >= options_.max_early_entries) {
    return violation("more control frames than it may");
  }
  Early* const early = pool_.take(0);
  if (early == nullptr) return {Code::system_error, "no memory to note an early message"};
  early->key = key_of(header);
  early->signature = header.signature;
  early->total = header.total;
  table.insert(*early);
  note_early(*early);
  return {};
}

Status Matching::accept_offer(const FrameHeader& header) {
  Transfer* const recv = recvs_.find(key_of(header));
  if (recv == nullptr) return remember(early_, header);
  if (!agrees(*recv, header.signature, header.total)) {
    refuse(*recv, header.signature, header.total);
    return {};
  }
  if (recv->marks & (offer_seen | unasked)) return violation("an offer of what it had sent");
  recv->marks |= offer_seen;
  if (!(recv->marks & ready_sent)) {
    recv->marks |= ready_sent;
    tell(FrameKind::ready, *recv);
  } else if ((recv->marks & started) && recv->moved == recv->bytes) {
    finish_recv(*recv);
  }
  return {};
}

Status Matching::accept_ready(const FrameHeader& header) {
  Transfer* const send = offered_.find(key_of(header));
  if (send == nullptr) return remember(readies_, header);
  if (!agrees(*send, header.signature, header.total)) {
    refuse(*send, header.signature, header.total);
    return {};
  }
  offered_.take(send->key);
  bulk_.push(*send);
  return {};
}

Status Matching::landed(const InFrame& frame) {
  const FrameHeader& header = frame.header;
  if ((header.flags & frame_flag::checked) && frame.data != nullptr &&
      crc32c(frame.data, header.length) != header.payload_check) {
    return {Code::remote_error,
            "payload from rank " + std::to_string(peer_) +
                " arrived damaged: its checksum (CRC32C) is wrong. Look at the network between "
                "the two hosts",
            peer_};
  }
  if (frame.recv != nullptr) {
    Transfer& recv = *frame.recv;
    recv.moved += header.length;
    if (recv.moved == recv.bytes && (!(recv.marks & needs_offer) || (recv.marks & offer_seen))) {
      finish_recv(recv);
    }
  } else if (frame.early != nullptr) {
    Early& early = *frame.early;
    early.landed += header.length;
    if (early.landed == early.total && early.recv != nullptr) {
      Transfer& recv = *early.recv;
      early.recv = nullptr;
      take_early(recv, early);
    }
  } else if (header.kind == FrameKind::refuse) {
    end(mismatch(key_of(header), refusal_in_.signature, refusal_in_.total, header.signature,
                 header.total));
  }
  return {};
}

void Matching::finish_recv(Transfer& recv) {
  recvs_.take(recv.key);
  if (recv.marks & unasked) consumed(recv.bytes);
  finish(recv, Status());
}

void Matching::consumed(std::uint64_t bytes) {
  eager_consumed_ += charge(bytes);
  if (eager_consumed_ - credit_told_ >= options_.window_bytes / 4 && !ended()) credit_due_ = true;
}

// ---- Agreement

bool Matching::agrees(const Transfer& transfer, const Signature& theirs,
                      std::uint64_t total) const {
  const Signature& mine = signature_of(transfer);
  if (transfer.bytes != total) return false;
  // A send pairs with a receive.
  if (transfer.key.p2p) return mine.count == theirs.count && mine.dtype == theirs.dtype;
  return mine.same_call(theirs);
}

Status Matching::mismatch(const MessageKey& key, const Signature& mine, std::uint64_t my_bytes,
                          const Signature& theirs, std::uint64_t their_bytes) const {
  std::string text = "rank " + std::to_string(peer_) + " called " + describe(theirs) +
                     " where rank " + std::to_string(rank_) + " called " + describe(mine);
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

void Matching::refuse(const Transfer& transfer, const Signature& theirs, std::uint64_t total) {
  const Signature mine = signature_of(transfer);
  const MessageKey key = transfer.key;
  const std::uint64_t my_bytes = transfer.bytes;
  refusal_out_ = {theirs, total};
  refusal_frame_.header = header_of(FrameKind::refuse, key, my_bytes);
  refusal_frame_.header.signature = mine;
  refusal_frame_.header.length = sizeof refusal_out_;
  if (options_.checksum) {
    refusal_frame_.header.flags |= frame_flag::checked;
    refusal_frame_.header.payload_check = crc32c(&refusal_out_, sizeof refusal_out_);
  }
  seal(refusal_frame_.header);
  refusal_frame_.payload = reinterpret_cast<const std::byte*>(&refusal_out_);
  end(mismatch(key, mine, my_bytes, theirs, total));
  refusing_ = true;
}

// ---- Ends

void Matching::abandon(Transfer& transfer) {
  if (!transfer.done) finish(transfer, ended_);
}

void Matching::end_transfers(const Status& why) {
  ended_ = why;
  controls_.clear();
  controls_head_ = 0;
  credit_due_ = false;
  refusing_ = false;
  const auto finish_with_why = [&](Transfer& transfer) { finish(transfer, why); };
  recvs_.drain(finish_with_why);
  offered_.drain(finish_with_why);
  // A send that is cut in part also has frames under way: its wires abandon it right after.
  while (Transfer* transfer = eager_.pop()) finish(*transfer, why);
  while (Transfer* transfer = bulk_.pop()) finish(*transfer, why);
}

void Matching::end(const Status& why) {
  if (ended() && early_.size() == 0) return;
  end_transfers(ended() ? ended_ : why);
  forget_early();
}

void Matching::leave(const Status& why) {
  if (ended()) return;
  end_transfers(why);
  KeyTable<Early> complete;
  early_.drain([&](Early& early) {
    if (early.recv != nullptr) finish(*early.recv, why);
    if (early.eager && early.landed == early.total) {
      complete.insert(early);
    } else {
      pool_.give(&early);
    }
  });
  std::swap(early_, complete);
}

void Matching::forget_early() {
  early_.drain([&](Early& early) {
    if (early.recv != nullptr) finish(*early.recv, ended_);
    pool_.give(&early);
  });
  readies_.drain([&](Early& early) { pool_.give(&early); });
}

}  // namespace hocket
