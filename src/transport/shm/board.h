// The board: the memory segment that the ranks of a communicator share on a node. Each rank writes
// its own part and reads the parts of the others. A new board is all zero bytes. docs/PROTOCOL.md
// draws the layout.
//
//   per local rank: doorbell | progress | public flags | 128 arrival lines | 128 records
//                   32 tiny scratches | 8 small | 4 medium | 2 large; for ranks that share
//                   cores or whose cores are far apart: 128 of 512 bytes | 128 of 4 KiB |
//                   16 of 32 KiB | 8 of 128 KiB
//   per ordered pair: fifo (messages between the two)
//
// Lines that other ranks poll are 128 bytes apart; each has a single writer, and its value only
// grows. Each collective uses the next call record of a rank; a collective that uses the board
// also uses the next arrival line, and the next scratch of the size that it needs. run_ahead.h says
// when a rank may write to them again.
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
  std::byte payload[line_payload_bytes];  // inline data, BufferPlaces, or counts of blocks
};
static_assert(sizeof(ArrivalLine) == 128);

/// The regions and offsets of a rank's buffers, for local peers that read or write them directly.
/// In plans that map buffers it is the payload of the arrival line.
struct BufferPlaces {
  std::uint64_t input_region, input_offset, output_region, output_offset;
};
static_assert(sizeof(BufferPlaces) <= line_payload_bytes);

/// How far a rank is. Its peers read it only when they do not know whether they may begin their
/// next collective.
struct alignas(128) Progress {
  std::atomic<std::uint64_t> begun;  // the last collective that the rank has begun
};

/// A collective that a rank has begun. Its peers read it to find out whether they make the same
/// calls, and for the error if they do not.
struct alignas(64) CallRecord {
  std::atomic<std::uint64_t> collective;  // its number
  std::atomic<std::uint64_t> fingerprint;
  Signature signature;
};
static_assert(sizeof(CallRecord) == 64);

struct alignas(128) FlagLine {
  std::atomic<std::uint64_t> value;
};

/// The sleep state of a rank. A peer that has published something wakes the rank if it sleeps.
struct alignas(128) Doorbell {
  // Board::awake; asleep_in_futex: on this word; asleep_in_poll: a write to its eventfd wakes it.
  std::atomic<std::uint32_t> asleep;
  // 1 + the core on which the rank ran at its last long wait; 0: it has not waited long yet.
  std::atomic<std::uint32_t> core;
  // 1: membarrier(2) of a peer reaches the process of this rank.
  std::atomic<std::uint32_t> takes_barriers;
  // 1: before the rank sleeps, it executes membarrier(2), so its peers ring it without a fence.
  std::atomic<std::uint32_t> makes_barrier;
  std::atomic<std::uint32_t> sleeps;  // how many times the rank has announced that it sleeps
};

/// The control page of a rank, seven pages of memory: everything that it shares except scratch and
/// fifos.
struct alignas(4096) ControlPage {
  Doorbell doorbell;
  Progress progress;
  FlagLine flags[public_flags];
  alignas(4096) ArrivalLine arrivals[run_ahead_operations];
  CallRecord calls[run_ahead_operations];
};
static_assert(sizeof(ControlPage) == 28672);

/// The scratches of a rank. A rank may be as many operations ahead of its peers as there are
/// scratches of the size that it needs, less one.
///
/// All tiny scratches of a rank, all small or all medium ones, fill half of an L1 cache of 32 KiB:
/// a broadcast of 4 KiB between 2 ranks took 0.68 us with eight scratches of 4 KiB, and 0.55 us
/// with four. The three are only for collectives with a root. In other collectives every rank waits
/// for all others, so no rank can be far ahead, and more than two scratches only leave the cache
/// earlier: an all-reduce of 512 B between 2 ranks took 0.35 us with small scratches, 0.32 us with
/// large ones. none: of an operation without scratch.
///
/// Where ranks share cores, a rank should end as many operations as it can before another rank has
/// its turn on the core. So rooted collectives then use scratches of other sizes, of which there
/// are more: many_512, many_4k, many_32k, many_128k. A scatter of 8 KiB among 4 ranks on 2
/// cores took 2.6 us with two scratches, and 0.53 us with 16. With 128 scratches of 4 KiB instead
/// of 32, a broadcast of 4 KiB among them took 0.71 us instead of 1.2 us; twice as many of 32 and
/// 128 KiB gained nothing, because there the copies take the time.
///
/// The same scratches are used where lines take long from core to core. A rank that has few
/// scratches writes to each of them soon after its peer has read it, and waits for its lines. With
/// many, the rank is further ahead, and the lines have left the peer's first cache, or were
/// prefetched (docs/decisions/008-near-and-far-cores.md).
enum class ScratchSize : std::uint8_t {
  none,
  tiny,
  small,
  medium,
  large,
  many_512,
  many_4k,
  many_32k,
  many_128k
};

class Board {
 public:
  /// The size of a board for `local_ranks` ranks; every rank computes the same size.
  static std::size_t bytes(int local_ranks);
  static constexpr std::size_t scratch_sizes = 9;  // in ScratchSize
  static constexpr std::size_t tiny_scratch_bytes = 512, small_scratch_bytes = 2048,
                               medium_scratch_bytes = 4096;
  static constexpr std::size_t least_large_scratch_bytes = 64 << 10;  // with many ranks
  static constexpr std::size_t many_512_bytes = 512, many_4k_bytes = 4 << 10,
                               many_32k_bytes = 32 << 10, many_128k_bytes = 128 << 10;
  /// many: ranks of the node share cores, or their cores are far apart.
  static constexpr ScratchSize size_for(std::size_t bytes, bool many) {
    if (many) {
      return bytes <= many_512_bytes    ? ScratchSize::many_512
             : bytes <= many_4k_bytes   ? ScratchSize::many_4k
             : bytes <= many_32k_bytes  ? ScratchSize::many_32k
             : bytes <= many_128k_bytes ? ScratchSize::many_128k
                                        : ScratchSize::large;
    }
    return bytes <= tiny_scratch_bytes     ? ScratchSize::tiny
           : bytes <= small_scratch_bytes  ? ScratchSize::small
           : bytes <= medium_scratch_bytes ? ScratchSize::medium
                                           : ScratchSize::large;
  }
  /// The number of scratches of a size: a power of two.
  static constexpr std::uint64_t scratches(ScratchSize size) {
    return numbers_of_scratches[static_cast<int>(size)];
  }
  /// The size of one large scratch: the more ranks, the smaller.
  static std::size_t scratch_bytes_of(int local_ranks);

  Board() = default;
  Board(std::byte* base, int local_ranks, int local_rank);

  int local_rank() const { return local_rank_; }
  int local_ranks() const { return local_ranks_; }
  Doorbell& doorbell(int rank) const { return page(rank).doorbell; }
  Progress& progress(int rank) const { return page(rank).progress; }
  /// The line of a rank in an operation of the board.
  ArrivalLine& arrival(int rank, std::uint64_t operation) const {
    return page(rank).arrivals[operation % run_ahead_operations];
  }
  /// The record of a collective, by its number among all collectives.
  CallRecord& call(int rank, std::uint64_t collective) const {
    return page(rank).calls[collective % run_ahead_operations];
  }
  FlagLine& flag(int rank, int flag) const {
    HOCKET_ASSERT(flag >= 0 && flag < public_flags, "a program uses the flags that a board has");
    return page(rank).flags[flag];
  }
  /// The distance from the scratches of a rank to those of the next rank.
  std::size_t scratch_step(ScratchSize size) const {
    return scratches(size) * area(size).scratch_bytes;
  }
  std::byte* scratch(ScratchSize size, int rank, std::uint64_t operation) const {
    HOCKET_ASSERT(is_local(rank), "scratch belongs to a local rank");
    return base_ + area(size).offset + static_cast<std::size_t>(rank) * scratch_step(size) +
           (operation & (scratches(size) - 1)) * area(size).scratch_bytes;
  }
  std::size_t scratch_bytes(ScratchSize size = ScratchSize::large) const {
    return area(size).scratch_bytes;
  }
  std::byte* fifo(int from, int to) const {
    HOCKET_ASSERT(is_local(from) && is_local(to), "a fifo joins two local ranks");
    return base_ + fifo_offset_ +
           (static_cast<std::size_t>(from) * local_ranks_ + to) * fifo_bytes_;
  }
  std::size_t fifo_bytes() const { return fifo_bytes_; }  // a multiple of 4096

  /// False if rank `to` is awake and need not be rung. Call it after publishing: like ring(), it
  /// orders the publication before the read of the doorbell.
  bool may_sleep(int to) const { return may_sleep(doorbell(to)); }
  /// The same for the doorbell of a rank.
  static bool may_sleep(const Doorbell& bell) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return bell.makes_barrier.load(std::memory_order_relaxed) == 0 ||
           bell.asleep.load(std::memory_order_relaxed) != awake;
  }
  /// Wakes rank `to` if it sleeps in its futex. Call it after publishing. Returns true if the rank
  /// sleeps in poll: then the caller must write to its eventfd.
  bool ring(int to) const;

  static constexpr std::uint32_t awake = 0, asleep_in_futex = 1, asleep_in_poll = 2;
  /// The first step of falling asleep: from now on peers ring. The caller must then check once more
  /// for the event that it waits for, and call either sleep() or announce_awake().
  void announce_sleep(std::uint32_t how) const;
  void announce_awake() const {
    doorbell(local_rank_).asleep.store(awake, std::memory_order_seq_cst);
  }
  /// Registers this process for the barriers of its peers, if the kernel has them. Called once,
  /// before the first operation.
  void take_barriers() const;
  /// From now on, until its next sleep, peers ring this rank without a fence. That costs the rank a
  /// membarrier(2) at that sleep. Nothing changes if some peer does not take barriers.
  void make_barrier() const;
  /// The number of sleeps that this rank has announced.
  std::uint32_t sleeps() const {
    return doorbell(local_rank_).sleeps.load(std::memory_order_relaxed);
  }
  /// Publishes the core on which this rank runs. Returns true if another rank has published the
  /// same core.
  bool shares_core(int core) const;
  /// The second step: sleeps in the futex until a peer rings, at most timeout_ns; then the rank is
  /// awake.
  void sleep(std::int64_t timeout_ns) const;

 private:
  // By ScratchSize.
  static constexpr std::uint64_t numbers_of_scratches[] = {run_ahead_operations, 32,  8,  4, 2,
                                                           run_ahead_operations, 128, 16, 8};
  struct ScratchArea {  // the scratches of one size, of all ranks
    std::size_t offset = 0, scratch_bytes = 0;
  };
  const ScratchArea& area(ScratchSize size) const { return areas_[static_cast<int>(size)]; }
  bool is_local(int rank) const { return rank >= 0 && rank < local_ranks_; }
  ControlPage& page(int rank) const {
    HOCKET_ASSERT(base_ != nullptr && is_local(rank),
                  "lines belong to a local rank of an open board");
    return reinterpret_cast<ControlPage*>(base_)[rank];
  }

  std::byte* base_ = nullptr;
  int local_ranks_ = 0;
  int local_rank_ = 0;
  ScratchArea areas_[scratch_sizes];
  std::size_t fifo_offset_ = 0, fifo_bytes_ = 0;
};

/// Has a rank make barriers (Board::make_barrier) when it has published often and has not slept
/// meanwhile. A membarrier takes about 9 us on a virtual machine, and interrupts the other cores.
/// A fence that it replaces takes 7 ns, and the time in which a line that was just written leaves
/// the store buffer.
class SleepWatch {
 public:
  explicit SleepWatch(const Board& board) : board_(board) {}
  /// To be called when the rank has published something.
  void published() {
    if (++published_ % between_looks == 0) [[unlikely]]
      look();
  }

 private:
  static constexpr unsigned between_looks = 1024;

  void look() {
    awake_looks_ = board_.sleeps() == sleeps_ ? awake_looks_ + 1 : 0;
    sleeps_ = board_.sleeps();
    if (awake_looks_ == board_.local_ranks()) board_.make_barrier();
  }

  const Board& board_;
  unsigned published_ = 0;
  std::uint32_t sleeps_ = 0;  // at the last look
  int awake_looks_ = 0;       // looks in a row before which the rank did not sleep
};

}  // namespace hocket::internal
