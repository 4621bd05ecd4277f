// The board: the memory segment that the ranks of a communicator share on a node. Each rank writes
// its own part and reads the parts of the others. A new board is all zero bytes. docs/PROTOCOL.md
// draws the layout.
//
//   per local rank: doorbell | 2 arrival lines | public flags | 2 signatures | scratch[2]
//   per ordered pair: fifo (messages between the two)
//
// Lines that other ranks poll are 128 bytes apart; each has a single writer, and its value only
// grows. Two arrival lines and two scratch halves alternate by operation. Before a rank publishes
// operation s, it has seen every local peer arrive at s - 1 or later. So every peer has left
// operation s - 2, and the rank may reuse the line and the scratch half of s - 2.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/types.h"

namespace hocket::internal {

struct alignas(128) ArrivalLine {
  std::atomic<std::uint64_t> sequence;  // operation number; written last
  std::uint64_t fingerprint;
  std::uint64_t mapped;                   // bit 0: input is mapped, bit 1: output is mapped
  std::byte payload[line_payload_bytes];  // inline data, or BufferPlaces
};
static_assert(sizeof(ArrivalLine) == 128);

/// The regions and offsets of a rank's buffers, for local peers that read or write them directly.
/// In plans that map buffers it is the payload of the arrival line.
struct BufferPlaces {
  std::uint64_t input_region, input_offset, output_region, output_offset;
};
static_assert(sizeof(BufferPlaces) <= line_payload_bytes);

struct alignas(128) FlagLine {
  std::atomic<std::uint64_t> value;
};

/// The sleep state of a rank. A peer that has published something wakes the rank if it sleeps.
struct alignas(128) Doorbell {
  // Board::awake; asleep_in_futex: on this word; asleep_in_poll: a write to its eventfd wakes it.
  std::atomic<std::uint32_t> asleep;
  // 1 + the core on which the rank ran at its last long wait; 0: it has not waited long yet.
  std::atomic<std::uint32_t> core;
};

struct alignas(128) SignatureSlots {
  Signature of_parity[2];  // ArrivalLine::fingerprint is their hash, and is written after them
};

class Board {
 public:
  /// The size of a board for `local_ranks` ranks; every rank computes the same size.
  static std::size_t bytes(int local_ranks);
  /// Of one half of the scratch of a rank: the more ranks, the less.
  static std::size_t scratch_bytes_of(int local_ranks);

  Board() = default;
  Board(std::byte* base, int local_ranks, int local_rank);

  int local_rank() const { return local_rank_; }
  int local_ranks() const { return local_ranks_; }
  Doorbell& doorbell(int rank) const { return *at<Doorbell>(rank, 0); }
  ArrivalLine& arrival(int rank, int parity) const {
    HOCKET_ASSERT(parity == 0 || parity == 1, "arrival lines alternate between two");
    return *at<ArrivalLine>(rank, sizeof(Doorbell) + parity * sizeof(ArrivalLine));
  }
  FlagLine& flag(int rank, int flag) const {
    HOCKET_ASSERT(flag >= 0 && flag < public_flags, "a program uses the flags that a board has");
    return *at<FlagLine>(rank,
                         sizeof(Doorbell) + 2 * sizeof(ArrivalLine) + flag * sizeof(FlagLine));
  }
  SignatureSlots& signatures(int rank) const {
    return *at<SignatureSlots>(
        rank, sizeof(Doorbell) + 2 * sizeof(ArrivalLine) + public_flags * sizeof(FlagLine));
  }
  std::byte* scratch(int rank, int parity) const {
    HOCKET_ASSERT(is_local(rank) && (parity == 0 || parity == 1),
                  "scratch belongs to a local rank");
    return base_ + scratch_offset_ + (2 * static_cast<std::size_t>(rank) + parity) * scratch_bytes_;
  }
  std::size_t scratch_bytes() const { return scratch_bytes_; }  // of one half
  std::byte* fifo(int from, int to) const {
    HOCKET_ASSERT(is_local(from) && is_local(to), "a fifo joins two local ranks");
    return base_ + fifo_offset_ +
           (static_cast<std::size_t>(from) * local_ranks_ + to) * fifo_bytes_;
  }
  std::size_t fifo_bytes() const { return fifo_bytes_; }  // a multiple of 4096

  /// Wakes rank `to` if it sleeps in its futex. Call it after publishing: it orders the publication
  /// before the read of the doorbell. True: the rank sleeps in poll, and the caller must write to
  /// its eventfd.
  bool ring(int to) const;

  /// Returns the error for a peer whose arrival line has another fingerprint than `mine`. If the
  /// signatures differ too, the two ranks made different calls; if the signatures are equal, a
  /// process has overwritten the line.
  Status disagreement_with(int peer, int parity, const Signature& mine, int rank,
                           int rank_of_peer) const;

  static constexpr std::uint32_t awake = 0, asleep_in_futex = 1, asleep_in_poll = 2;
  /// First step of falling asleep: from now on peers ring. The caller must then check once more for
  /// the event that it waits for, and call either sleep() or announce_awake().
  void announce_sleep(std::uint32_t how) const {
    doorbell(local_rank_).asleep.exchange(how, std::memory_order_seq_cst);
  }
  void announce_awake() const {
    doorbell(local_rank_).asleep.store(awake, std::memory_order_seq_cst);
  }
  /// Publishes the core on which this rank runs. Returns true if another rank has published the
  /// same core.
  bool shares_core(int core) const;
  /// Second step: sleeps in the futex until a peer rings, at most timeout_ns; then the rank is
  /// awake.
  void sleep(std::int64_t timeout_ns) const;

 private:
  bool is_local(int rank) const { return rank >= 0 && rank < local_ranks_; }
  template <typename T>
  T* at(int rank, std::size_t offset) const {
    HOCKET_ASSERT(base_ != nullptr && is_local(rank),
                  "lines belong to a local rank of an open board");
    HOCKET_ASSERT(offset + sizeof(T) <= control_bytes, "the lines of a rank fit in its page");
    return reinterpret_cast<T*>(base_ + rank * control_bytes + offset);
  }
  static constexpr std::size_t control_bytes = 4096;  // per rank, a page of its own

  std::byte* base_ = nullptr;
  int local_ranks_ = 0;
  int local_rank_ = 0;
  std::size_t scratch_offset_ = 0, scratch_bytes_ = 0, fifo_offset_ = 0, fifo_bytes_ = 0;
};

}  // namespace hocket::internal
