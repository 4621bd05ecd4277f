// Unexpected messages, which arrive before their transfer is posted, and the pool of their memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace hocket::internal {

struct UnexpectedMessage {
  MessageKey key;
  UnexpectedMessage* next = nullptr;
  Signature signature;
  std::uint64_t total = 0;
  std::byte* data = nullptr;  // eager payload; null: an RTS, a CTS or a location
  int size_class = -1;
  bool eager = false;
  std::uint64_t announced = 0;  // bytes in the frames whose header has arrived
  std::uint64_t arrived = 0;    // bytes that have arrived
  bool located = false;
  RegionOffset location;     // if located
  Transfer* recv = nullptr;  // posted before all frames had arrived; else null
  // Neighbours in the list of a SequenceOrder.
  UnexpectedMessage* before = nullptr;
  UnexpectedMessage* after = nullptr;
};

/// The unexpected messages of collectives of a link, in ascending order of their sequence numbers.
/// They arrive nearly in this order, so that adding one takes constant time.
class SequenceOrder {
 public:
  UnexpectedMessage* first() const { return first_; }
  void add(UnexpectedMessage& unexpected);
  /// The message must be in the list.
  void remove(UnexpectedMessage& unexpected);

 private:
  UnexpectedMessage* first_ = nullptr;
  UnexpectedMessage* last_ = nullptr;
};

/// Keeps the memory of unexpected messages and gives it to later ones, so that a steady load
/// allocates nothing.
class UnexpectedPool {
 public:
  UnexpectedPool() = default;
  UnexpectedPool(const UnexpectedPool&) = delete;
  UnexpectedPool& operator=(const UnexpectedPool&) = delete;
  ~UnexpectedPool();

  /// Returns an entry for `bytes` of payload (0: no payload); null if there is no memory.
  UnexpectedMessage* take(std::size_t bytes);
  void give(UnexpectedMessage* unexpected);

 private:
  static constexpr int smallest = 6;  // 64 bytes
  static constexpr int classes = 15;  // up to 1 MiB
  static constexpr std::size_t max_idle_bytes = 4 << 20;
  struct Idle {
    Idle* next;
  };

  std::array<Idle*, classes> idle_{};
  UnexpectedMessage* idle_entries_ = nullptr;
  std::size_t idle_bytes_ = 0;
};

}  // namespace hocket::internal
