// The interface of all transports: they move messages between two ranks. No call but close()
// blocks, and a transport has no thread of its own: the engine calls poll() until its transfers
// have ended.
//
// A key identifies a message; sender and receiver post the same key, in any order and at any time.
// A send of at most eager_bytes may end before the receiver has posted; a larger send ends only
// after that. A transport belongs to one communicator. One thread at a time uses it, except for
// doorbells and adopt().
//
// shm/ moves messages between the ranks of a node, tcp/ between any ranks, self/ from a rank to
// itself. A MessageMatcher (message_matcher.h) pairs sends with receives. The specification is the
// test suite tests/transport/conformance_test.cc, which runs over shm and tcp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "memory/regions.h"

namespace hocket::internal {

struct MessageKey {
  // Collectives: number of the operation. hocketSend/hocketRecv: number of the message from this
  // sender to this receiver.
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;  // number of the message in its operation, tag and pair
  std::uint32_t tag = 0;    // of the plan's step
  bool p2p = false;         // the message belongs to hocketSend/hocketRecv
  bool operator==(const MessageKey&) const = default;
};

/// No peer copies a shorter message from the memory of its sender: that gains no time.
inline constexpr std::size_t least_located_bytes = 16 << 10;

/// The send or the receive of one message. The caller owns it and its memory. Both must stay in
/// place from post until done is set, or until cancel() of the transport has returned. No byte but
/// those of its message reaches the memory of a receive: a plan may read there as long as the peer
/// cannot send the message.
struct Transfer {
  MessageKey key;
  int peer = -1;
  std::byte* data = nullptr;  // read only by sends
  std::size_t bytes = 0;      // sender and receiver must agree; 0 is a message too
  // Of the operation; the receiver compares it with the signature of the sender.
  const Signature* signature = nullptr;
  /// A send whose memory ranks of this node can map: it is at `location`. A transport may let the
  /// peer copy the message from there, and need not.
  bool mappable = false;
  /// Of a mappable send: the peer copies the message from there also if it could be eager.
  bool prefers_location = false;
  /// A send that is not mappable: a transport may let the peer have the kernel copy the message
  /// from the memory of this process.
  bool readable = false;
  /// A recv whose bytes are not read soon: what is copied from mapped memory bypasses the caches.
  bool non_temporal = false;
  RegionOffset location;  // of a recv: where the sender's memory is, set by the transport
  // Set by the transport:
  bool done = false;
  Status status;                    // an error ends the transfer too: a mismatch, or a lost link
  std::size_t moved = 0;            // bytes sent or received so far
  std::uint64_t sender_scalar = 0;  // recv: of the sender's signature (Signature::scalar)
  // The transport uses these while the transfer is posted:
  std::size_t framed_bytes = 0;  // bytes handed to frames (send), announced by frames (recv)
  std::uint8_t state = 0;
  Transfer* next = nullptr;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;  // "shm", "tcp", "self"
  /// True if this transport leads to peer (shm: if peer is on this node).
  virtual bool reaches(int peer) const = 0;

  /// Both connect to the peer first, if needed. An error ends the transfer.
  virtual void post_send(Transfer& transfer) = 0;
  virtual void post_recv(Transfer& transfer) = 0;
  /// Moves the bytes that can move now, without blocking. Returns true if bytes moved.
  virtual bool poll() = 0;
  /// Called when this rank begins a collective, before it posts a transfer. The messages of the
  /// collective have `sequence` in their keys, which is larger than that of any earlier collective.
  virtual void begin_collective(std::uint64_t /*sequence*/, const Signature& /*signature*/) {}
  /// How the transport stores what peers of this node read: past the caches or ordinarily. The
  /// bytes are the same. Figures (collectives/select/figures.h) say what is faster.
  virtual void store_non_temporal(bool /*non_temporal*/) {}
  /// Whether peers of this node have the kernel copy readable messages that are not eager. Figures
  /// (collectives/select/figures.h) say whether the kernel lets all of them, and what is faster.
  virtual void use_kernel_copies(bool /*use*/) {}
  /// Called when this rank has waited long for `peer` in its latest collective. Sends that call to
  /// the peer, so that a peer that waits in another call finds out. The peer does not answer.
  virtual void tell_call(int /*peer*/, std::uint64_t /*sequence*/, const Signature& /*call*/) {}
  /// The error for the first message of a collective that this rank did not call; null: no such
  /// message has arrived. poll() and begin_collective() find such messages. No transfer has this
  /// error, because this rank may have posted no transfer for the message.
  virtual const Status* failure() const { return nullptr; }
  /// Ends all transfers with an error. When it returns, neither this process nor a late peer writes
  /// the memory of any transfer. A late peer may still read the memory of a send that it has
  /// mapped, but then its receive ends with an error too.
  virtual void cancel(const Status& why) = 0;
  /// Sends a goodbye frame on every link and closes it; tcp waits up to 1 s for the peers to take
  /// it. No transfer may be posted.
  virtual void close() = 0;

  /// A descriptor that is readable (epoll) when poll() may have work, for a rank that sleeps after
  /// poll() returned false. It never changes. -1: a peer rings the rank's doorbell instead.
  virtual int wait_descriptor() const = 0;
  /// Prepares the descriptor for one sleep: it becomes readable at once if bytes have arrived
  /// already.
  virtual void prepare_to_sleep() {}
  /// The sequence number of the newest collective of which peer has sent a frame; 0: none.
  virtual std::uint64_t latest_sequence_from(int peer) const = 0;
  /// True while transfers are in flight or links have bytes to flush.
  bool active() const { return may_be_active_ && is_active(); }

 protected:
  virtual bool is_active() const = 0;
  /// A transport may set it to false while it has nothing to do: then active() calls no virtual
  /// function. The time of that is noticed in small calls.
  mutable bool may_be_active_ = true;
};

}  // namespace hocket::internal
