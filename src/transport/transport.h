// How bytes move between two ranks as messages. Non-blocking, no threads, no clocks, no policy:
// whoever holds a transport calls poll() until what it posted has ended.
//
// A message is named by its key; sender and receiver post the same key, in any order and at any
// time. Up to eager_bytes a send may end before the receiver has posted; above, it ends only after.
// A transport belongs to one communicator and is used by one thread at a time (doorbells and
// adopt() aside).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/types.h"

namespace hocket::internal {

struct MessageKey {
  std::uint64_t sequence =
      0;  // operation number; send/recv: number of the message on that pair, p2p set
  std::uint32_t index = 0;  // number of the message in its operation, lane and pair
  std::uint16_t lane = 0;
  bool p2p = false;  // hocketSend/hocketRecv, which are counted per pair and direction
  bool operator==(const MessageKey&) const = default;
};

/// One message being sent or received. The caller owns it and its memory, and keeps both where they
/// are from post until done is set, or until cancel() of the transport has returned.
struct Transfer {
  MessageKey key;
  int peer = -1;
  std::byte* data = nullptr;  // read only by sends
  std::size_t bytes = 0;      // sender and receiver must agree; 0 is a message too
  const Signature* signature =
      nullptr;  // of the operation; the receiver compares it with the sender's
  // Set by the transport:
  bool done = false;
  Status status;          // an error ends the transfer too: mismatch, or a lost link
  std::size_t moved = 0;  // bytes so far
  // The transport's own, while the transfer is posted:
  std::size_t framed_bytes = 0;  // bytes handed to frames (send), announced by frames (recv)
  std::uint8_t state = 0;
  Transfer* next = nullptr;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;  // "shm", "tcp", "self"
  /// Whether peer can be reached at all (shm: is local).
  virtual bool reaches(int peer) const = 0;

  /// Connects where that is still needed; errors end the transfers.
  virtual void post_send(Transfer& transfer) = 0;
  virtual void post_recv(Transfer& transfer) = 0;
  /// Moves what can be moved now, without blocking. True where anything did.
  virtual bool poll() = 0;
  /// Ends all transfers, undone. When it returns, no byte of a caller's memory is read or written
  /// any more, by this process or by a late peer.
  virtual void cancel(const Status& why) = 0;
  /// Says goodbye on every link and closes it. Nothing may be in flight.
  virtual void close() = 0;

  /// A descriptor that is readable (epoll) when poll() may have work, for a rank that wants to
  /// sleep after a poll() that returned false; always the same. -1 where a peer rings the rank's
  /// doorbell instead.
  virtual int wait_descriptor() const = 0;
  /// Arms that descriptor for one sleep. What came before is not lost: it is readable then.
  virtual void prepare_to_sleep() {}
  /// The newest collective of which anything has come from peer; 0: none.
  virtual std::uint64_t latest_sequence_from(int peer) const = 0;
  /// True while transfers are in flight or links have bytes to flush.
  virtual bool active() const = 0;
};

}  // namespace hocket::internal
