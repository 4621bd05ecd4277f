// Pairs sends with receives by their keys (tag matching in MPI): the part of a transport that does
// not depend on the medium. Each link has a MessageMatcher. The link (a pair of fifos, or some
// sockets) asks it for the next frame to send, and gives it each header that arrives; the matcher
// returns the address for the payload.
//
// Small messages are eager: the sender sends them without asking, and the receiver buffers them
// until a receive is posted. Their sum stays within a window that the receiver grants. Larger
// messages use a rendezvous: the receiver sends a CTS when its transfer is posted, and only then
// does payload travel, straight into the posted memory. If the receiver's transfer is not larger
// than eager_bytes, it sends the CTS only in answer to an RTS. A sender without a CTS sends an RTS,
// so that both ranks detect a mismatch, whichever rank made the wrong call. No message waits for
// another message: every frame has a destination when it arrives. So transfers complete in
// whatever order the two sides post them.
//
// If the receiver can map the memory of a message that is not eager, the sender sends the location
// of the message at once, instead of an RTS and of the payload. When the receive is posted, the
// link copies the message from there, and the matcher tells the sender that it is taken. A receive
// that is posted before the location arrives has sent a CTS, which nobody needs then. Where
// the link has the kernel copy the message, the location is an address in the sender's process. If
// the kernel refuses, the matcher sends a refusal, and then the sender sends the payload.
//
// A mismatch ends the link: the rank that detects it sends a NACK, and all transfers between the
// two ranks end with the same error, now and later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/frame.h"
#include "transport/key_table.h"
#include "transport/sequence_check.h"
#include "transport/transport.h"
#include "transport/unexpected.h"

namespace hocket::internal {

/// The same on both sides of a link.
struct MatcherOptions {
  std::size_t eager_bytes = 64 << 10;
  std::size_t frame_bytes = 512 << 10;  // at most max_frame_bytes
  std::size_t window_bytes = 16 << 20;  // limit of eager traffic that is not yet consumed
  /// Limit of unexpected messages, RTS and CTS of a peer: one more RTS or CTS is a violation.
  std::size_t max_unexpected_entries = 1 << 20;
  bool checksum = false;  // send a CRC32C of each payload
  /// The link copies messages from locations in the sender's memory. Not with checksum, which is of
  /// a payload.
  bool maps = false;
};

/// A frame to send: header, then header.length bytes at payload. The link seals the header.
struct OutFrame {
  FrameHeader header;
  bool is_set = false;  // header is that of a frame
  /// The header differs from that of the frame before only in the numbers of message and call.
  bool repeats = false;
  const std::byte* payload = nullptr;
  /// Of a data frame: it owns the payload. Of a FIN: it ends with this frame. Else null.
  Transfer* transfer = nullptr;
};

/// A frame that arrives: the link writes header.length bytes of payload to data.
struct InFrame {
  FrameHeader header;
  std::byte* data = nullptr;
  Transfer* recv = nullptr;
  UnexpectedMessage* unexpected = nullptr;
};

class MessageMatcher {
 public:
  /// pool, sequence_check: those of all links of the transport. Both outlive the matcher.
  MessageMatcher(int rank, int peer, std::uint64_t comm_id, const MatcherOptions& options,
                 UnexpectedPool& pool, CollectiveSequenceCheck& sequence_check);
  ~MessageMatcher();
  MessageMatcher(const MessageMatcher&) = delete;
  MessageMatcher& operator=(const MessageMatcher&) = delete;

  int rank() const { return rank_; }
  int peer() const { return peer_; }
  /// The sequence number of the newest collective of which the peer has sent a frame; 0: none.
  std::uint64_t latest_sequence() const { return latest_sequence_; }
  void post_send(Transfer& transfer);
  void post_recv(Transfer& transfer);
  /// Sends the peer a frame that says in which collective this rank waits for it.
  void tell_call(std::uint64_t sequence, const Signature& signature);

  // ---- Outgoing
  using Want = std::uint8_t;  // kinds of frames; a sum of these:
  static constexpr Want controls = 1, eager = 2, bulk = 4, any = 7;
  /// Sets the next frame to send; a data frame has at most max_payload bytes of payload. Returns
  /// false if there is none. frame: a new one, or the frame before.
  bool next_frame(Want want, std::size_t max_payload, OutFrame& frame);
  /// The link has sent a frame with this OutFrame::transfer and `bytes` of payload, and no longer
  /// reads them.
  void sent(Transfer& transfer, std::size_t bytes);
  bool has(Want want) const {
    return ((want & controls) && has_controls()) || ((want & eager) && !eager_.empty()) ||
           ((want & bulk) && !bulk_.empty());
  }
  bool has_frames() const { return has(any); }
  /// The eager message that is sent next; null: there is none.
  const Transfer* next_eager() const { return eager_.head; }
  std::size_t bulk_bytes() const;  // size of the rendezvous message that is being sent; 0: none
  /// Returns a frame without payload of this kind, reading or goodbye.
  OutFrame signal(FrameKind kind) const;

  // ---- Incoming
  /// Checks a header and sets frame.data, the address for its payload. An error is a violation: the
  /// caller must fail the link. After success the caller must check ended().
  Status accept(const FrameHeader& header, InFrame& frame);
  /// The two halves of accept(). check() needs no other frame; accept_checked() takes frame.header,
  /// which is a header that was checked, or one that differs from it in its numbers only.
  Status check(const FrameHeader& header) const;
  Status accept_checked(InFrame& frame);
  /// Returns the error for a peer that broke the protocol by sending `what`.
  Status violation(const std::string& what) const;
  /// The whole payload of the frame has been written to frame.data.
  Status payload_complete(const InFrame& frame);
  /// The receive that the link must copy next from its location: its first `moved` bytes are
  /// copied. Null: there is none.
  Transfer* next_located() const { return located_.head; }
  /// The link has copied all of next_located().
  void located_complete();
  /// The link cannot copy next_located() from its location.
  void located_refused();

  // ---- Ends
  /// Ends all transfers with `why`, and every transfer that is posted later.
  void end(const Status& why);
  /// The same, but messages that have arrived completely can still be received.
  void leave(const Status& why);
  bool ended() const { return !ended_.ok(); }
  const Status& why() const { return ended_; }
  /// Ends a transfer whose frames the link still held when the link ended.
  void abandon(Transfer& transfer);

  /// True if transfers are posted or frames are to be sent.
  bool busy() const { return open_ > 0 || has_frames(); }
  /// Number of transfers that have not ended.
  std::size_t open() const { return open_; }

  /// For CollectiveSequenceCheck::begin(): compares the unexpected messages of the collectives
  /// that this rank has begun, and the call in which the peer waits, with the calls of this rank.
  /// Returns the number of messages compared.
  std::size_t review_unexpected();
  /// True if review_unexpected() will have something to compare, now or in a later collective.
  bool has_to_review() const { return by_sequence_.first() != nullptr || call_in_.sequence != 0; }

 private:
  struct Queue {
    Transfer* head = nullptr;
    Transfer* tail = nullptr;
    bool empty() const { return head == nullptr; }
    void push(Transfer& transfer);
    Transfer* pop();
  };
  struct Control {
    FrameKind kind;
    MessageKey key;
    Signature signature;
    std::uint64_t total;
    RegionOffset location;  // of a location frame
  };

  static std::uint64_t charge(std::uint64_t bytes) { return bytes + 256; }
  bool sends_location(const Transfer& transfer) const {
    return (transfer.mappable || transfer.readable) && options_.maps && !options_.checksum;
  }
  void send_location(Transfer& transfer);
  bool start(Transfer& transfer);
  void finish(Transfer& transfer, const Status& status);
  void finish_recv(Transfer& transfer);
  void consumed(std::uint64_t bytes);
  void queue_control(FrameKind kind, const Transfer& transfer);
  bool has_controls() const {
    return controls_head_ < controls_.size() || credit_due_ || nack_due_ || call_due_;
  }
  struct Fields;  // of a header
  void set_header(const Fields& fields, OutFrame& frame) const;
  void next_control(OutFrame& frame);  // has_controls()
  bool agrees(const Transfer& transfer, const Signature& theirs, std::uint64_t total) const;
  /// Ends the link with a mismatch and sends a NACK to the peer.
  void send_nack(const Transfer& transfer, const Signature& theirs, std::uint64_t total);
  void note_unexpected(UnexpectedMessage& unexpected);
  void forget(UnexpectedMessage& unexpected);
  bool check_peer_call();
  void check_sequence(const UnexpectedMessage& unexpected);
  Status mismatch(const MessageKey& key, const Signature& mine, std::uint64_t my_bytes,
                  const Signature& theirs, std::uint64_t their_bytes) const;
  Status accept_data(const FrameHeader& header, InFrame& frame);
  Status accept_posted(const FrameHeader& header, Transfer& recv, InFrame& frame);
  Status accept_unexpected(const FrameHeader& header, InFrame& frame);
  Status accept_location(const FrameHeader& header);
  Status accept_fin(const FrameHeader& header);
  Status accept_refusal(const FrameHeader& header);
  Status accept_rts(const FrameHeader& header);
  Status accept_cts(const FrameHeader& header);
  Status remember(KeyTable<UnexpectedMessage>& table, const FrameHeader& header,
                  UnexpectedMessage** entry = nullptr);
  void take_unexpected(Transfer& recv, UnexpectedMessage& unexpected);
  void end_transfers(const Status& why);
  void forget_unexpected();

  const int rank_;
  const int peer_;
  const std::uint64_t comm_id_;
  const MatcherOptions options_;
  UnexpectedPool& pool_;
  CollectiveSequenceCheck& sequence_check_;
  Status ended_;
  std::size_t open_ = 0;
  std::uint64_t latest_sequence_ = 0;

  KeyTable<Transfer> recvs_;                   // posted; no entry in unexpected_
  KeyTable<UnexpectedMessage> unexpected_;     // eager messages and RTS without a receive
  KeyTable<Transfer> awaiting_cts_;            // sends that have sent an RTS
  KeyTable<UnexpectedMessage> unmatched_cts_;  // CTS without a send
  SequenceOrder by_sequence_;                  // those of both tables that belong to collectives
  Queue eager_;                                // eager messages to send
  Queue bulk_;                                 // rendezvous messages to send
  KeyTable<Transfer> awaiting_fin_;            // sends that have sent their location
  Queue located_;                              // recvs to be copied from their location
  Queue awaiting_room_;                        // recvs that were copied; their FINs are queued
  std::vector<Control> controls_;
  std::size_t controls_head_ = 0;
  bool nack_due_ = false;
  OutFrame nack_frame_;
  /// A collective in which a rank waits for the other rank. sequence 0: none.
  struct WaitingCall {
    std::uint64_t sequence = 0;
    Signature signature;
  };
  // call_out_: that of this rank, to be sent if call_due_. call_in_: that of the peer.
  WaitingCall call_out_, call_in_;
  bool call_due_ = false;
  Nack nack_out_, nack_in_;
  RegionOffset location_out_, location_in_;  // payload of a location frame

  std::uint64_t eager_sent_ = 0, eager_credited_ = 0;                       // as the sender
  std::uint64_t eager_arrived_ = 0, eager_consumed_ = 0, credit_told_ = 0;  // as the receiver
  bool credit_due_ = false;
};

}  // namespace hocket::internal
