// Who gets which bytes: the half of a transport that knows messages but no wires. One
// MessageMatcher per peer. The wires (a fifo, some sockets) ask it for the next frame to send and
// show it each header that arrives; it answers where the payload goes.
//
// Small messages are eager: they are sent unasked, and buffered where no receive is posted yet, as
// long as their sum stays within the window that the receiver grants. All others are a rendezvous:
// the receiver says `ready` when its transfer is posted (where that is at most eager_bytes: when an
// offer has come too), and only then does payload travel, straight into the posted memory. A sender
// that has no `ready` yet offers, so that both learn of a mismatch whichever of them is wrong.
// Nothing ever waits for a message in front of it: every frame that arrives has a place to go, so
// transfers complete whatever the order of posting on either side.
//
// A mismatch ends the link: the one who sees it tells the other (refuse), and everything between
// the two ends with the same error, now and later.
#pragma once

#include <cstddef>
#include <cstdint>
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
  std::size_t window_bytes = 16 << 20;  // unasked and unconsumed traffic of a peer
  /// Buffered messages, offers and readies of a peer that nobody has posted for: with so many, one
  /// more offer or ready is a violation.
  std::size_t max_unexpected_entries = 1 << 20;
  bool checksum = false;                              // send CRC32C of payloads
  CollectiveSequenceCheck* sequence_check = nullptr;  // null: messages may be posted in any order
};

/// A frame to send: header, then header.length bytes at payload.
struct OutFrame {
  FrameHeader header;
  const std::byte* payload = nullptr;
  Transfer* transfer = nullptr;  // whose memory payload is; null: the link's own
};

/// A frame that arrives: header.length bytes go to data.
struct InFrame {
  FrameHeader header;
  std::byte* data = nullptr;
  Transfer* recv = nullptr;
  UnexpectedMessage* unexpected = nullptr;
};

class MessageMatcher {
 public:
  MessageMatcher(int rank, int peer, std::uint64_t comm_id, const MatcherOptions& options,
                 UnexpectedPool& pool);
  ~MessageMatcher();
  MessageMatcher(const MessageMatcher&) = delete;
  MessageMatcher& operator=(const MessageMatcher&) = delete;

  int peer() const { return peer_; }
  /// The newest collective of which anything has come; 0: none.
  std::uint64_t latest_sequence() const { return latest_sequence_; }
  void post_send(Transfer& transfer);
  void post_recv(Transfer& transfer);

  // ---- Outgoing
  using Want = std::uint8_t;  // which frames, a sum of:
  static constexpr Want controls = 1, eager = 2, bulk = 4, any = 7;
  /// The next frame, with at most max_payload bytes where it is a piece of a message.
  bool next_frame(Want want, std::size_t max_payload, OutFrame& frame);
  /// The payload of a frame of `transfer` is no longer needed.
  void sent(Transfer& transfer, std::size_t bytes);
  bool has(Want want) const {
    return ((want & controls) && has_controls()) || ((want & eager) && !eager_.empty()) ||
           ((want & bulk) && !bulk_.empty());
  }
  bool has_frames() const { return has(any); }
  /// The eager message that is sent next; null: there is none.
  const Transfer* next_eager() const { return eager_.head; }
  std::size_t bulk_bytes() const;  // of the message being cut
  /// A frame of nothing but its kind: hello or bye.
  OutFrame signal(FrameKind kind) const;

  // ---- Incoming
  /// Judges a header and says where the payload goes. An error is a violation: fail the link.
  /// After it, look at ended().
  Status accept(const FrameHeader& header, InFrame& frame);
  /// The error of a peer that sent `what`, which it may not.
  Status violation(const char* what) const;
  /// The payload is there.
  Status payload_complete(const InFrame& frame);

  // ---- Ends
  /// Everything posted ends with why, and so does everything posted from now on.
  void end(const Status& why);
  /// The same, but what the peer had sent in full may still be received.
  void leave(const Status& why);
  bool ended() const { return !ended_.ok(); }
  const Status& why() const { return ended_; }
  /// Ends one transfer whose frames were under way when the link ended.
  void abandon(Transfer& transfer);

  /// Transfers in flight, or frames of its own to send.
  bool busy() const { return open_ > 0 || has_frames(); }
  /// Something is expected from the peer.
  std::size_t open() const { return open_; }

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
  };

  static std::uint64_t charge(std::uint64_t bytes) { return bytes + 256; }
  bool start(Transfer& transfer);
  void finish(Transfer& transfer, const Status& status);
  void finish_recv(Transfer& transfer);
  void consumed(std::uint64_t bytes);
  void tell(FrameKind kind, const Transfer& transfer);
  bool has_controls() const {
    return controls_head_ < controls_.size() || credit_due_ || nack_due_;
  }
  FrameHeader header_of(FrameKind kind, const MessageKey& key, std::uint64_t total) const;
  void next_control(OutFrame& frame);  // has_controls()
  bool agrees(const Transfer& transfer, const Signature& theirs, std::uint64_t total) const;
  /// Ends the link with a mismatch and tells the peer.
  void send_nack(const Transfer& transfer, const Signature& theirs, std::uint64_t total);
  void note_unexpected(const UnexpectedMessage& unexpected);
  void check_sequence(const UnexpectedMessage& unexpected);
  void begin_collective(const Transfer& transfer);
  /// Compares what came early with the newest collective. False: nothing is left to compare.
  bool review_unexpected();
  Status mismatch(const MessageKey& key, const Signature& mine, std::uint64_t my_bytes,
                  const Signature& theirs, std::uint64_t their_bytes) const;
  Status accept_data(const FrameHeader& header, InFrame& frame);
  Status accept_posted(const FrameHeader& header, Transfer& recv, InFrame& frame);
  Status accept_unexpected(const FrameHeader& header, InFrame& frame);
  Status accept_rts(const FrameHeader& header);
  Status accept_cts(const FrameHeader& header);
  Status remember(KeyTable<UnexpectedMessage>& table, const FrameHeader& header);
  void take_unexpected(Transfer& recv, UnexpectedMessage& unexpected);
  void end_transfers(const Status& why);
  void forget_unexpected();

  const int rank_;
  const int peer_;
  const std::uint64_t comm_id_;
  const MatcherOptions options_;
  UnexpectedPool& pool_;
  Status ended_;
  std::size_t open_ = 0;
  std::uint64_t latest_sequence_ = 0;

  KeyTable<Transfer> recvs_;                   // posted, no early entry
  KeyTable<UnexpectedMessage> unexpected_;     // eager payload and offers without a recv
  KeyTable<Transfer> awaiting_cts_;            // sends that wait for ready
  KeyTable<UnexpectedMessage> unmatched_cts_;  // without a send
  Queue eager_;                                // to be cut in frames
  Queue bulk_;
  std::vector<Control> controls_;
  std::size_t controls_head_ = 0;
  bool nack_due_ = false;
  OutFrame nack_frame_;
  Nack nack_out_, nack_in_;

  std::uint64_t eager_sent_ = 0, eager_credited_ = 0;                       // as the sender
  std::uint64_t eager_arrived_ = 0, eager_consumed_ = 0, credit_told_ = 0;  // as the receiver
  bool credit_due_ = false;
};

}  // namespace hocket::internal
