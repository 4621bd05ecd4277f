#include "transport/shm/board.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/checked.h"
#include "base/membarrier.h"

namespace hocket::internal {
namespace {

constexpr std::size_t kib = 1024, mib = 1024 * kib;

// Sizes of a board. Large scratch: at most 32 MiB up to 256 ranks. Fifos: 8 MiB for 8 ranks, 64 MiB
// for 64 ranks. With more ranks their sum grows with the square of the ranks, because a fifo has at
// least 16 KiB: 1 GiB for 256 ranks. A page takes memory only once it is touched.
std::size_t large_scratch(int ranks) {
  return std::clamp<std::size_t>(std::bit_floor(16 * mib / static_cast<std::size_t>(ranks)),
                                 Board::least_large_scratch_bytes, 2 * mib);
}

std::size_t fifo_of_pair(int ranks) {
  return std::clamp<std::size_t>(std::bit_floor(mib / static_cast<std::size_t>(ranks)), 16 * kib,
                                 128 * kib);
}

}  // namespace

std::size_t Board::scratch_bytes_of(int local_ranks) { return large_scratch(local_ranks); }

std::size_t Board::bytes(int local_ranks) {
  const Board board(nullptr, local_ranks, 0);
  const auto ranks = static_cast<std::size_t>(local_ranks);
  return board.fifo_offset_ + ranks * ranks * board.fifo_bytes_;
}

Board::Board(std::byte* base, int local_ranks, int local_rank)
    : base_(base),
      local_ranks_(local_ranks),
      local_rank_(local_rank),
      fifo_bytes_(fifo_of_pair(local_ranks)) {
  const auto ranks = static_cast<std::size_t>(local_ranks);
  std::size_t end = ranks * sizeof(ControlPage);
  const auto add = [&](ScratchSize size, std::size_t bytes) {
    areas_[static_cast<int>(size)] = {end, bytes};
    end += ranks * scratch_step(size);
  };
  add(ScratchSize::tiny, tiny_scratch_bytes);
  add(ScratchSize::small, small_scratch_bytes);
  add(ScratchSize::medium, medium_scratch_bytes);
  add(ScratchSize::large, large_scratch(local_ranks));
  add(ScratchSize::many_512, many_512_bytes);
  add(ScratchSize::many_4k, many_4k_bytes);
  add(ScratchSize::many_32k, many_32k_bytes);
  add(ScratchSize::many_128k, many_128k_bytes);
  fifo_offset_ = end;
}

bool Board::ring(int to) const {
  if (!may_sleep(to)) return false;
  Doorbell& bell = doorbell(to);
  // The caller's publication must become visible before this rank reads the doorbell: else a peer
  // that falls asleep at this moment could miss both the publication and the ring. The sleeper
  // works in the reverse order: it exchanges `asleep`, then checks for publications again.
  // tests/transport/doorbell.pml is the model for the model checker.
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer does not support fences. A read-modify-write of the same word gives the
  // same order, but is slower.
  const std::uint32_t state = bell.asleep.fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t state = bell.asleep.load(std::memory_order_relaxed);
#endif
  if (state == awake) [[likely]]
    return false;
  if (state == asleep_in_poll) return true;
  // Meanwhile the rank may have woken by itself, and fallen asleep in poll.
  const std::uint32_t was = bell.asleep.exchange(awake, std::memory_order_seq_cst);
  if (was == asleep_in_futex) {
    ::syscall(SYS_futex, &bell.asleep, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  return was == asleep_in_poll;
}

// A rank that makes a barrier: membarrier(2) returns when each core that runs a process of the node
// has executed a fence since the call. If a peer published before the fence of its core, this rank
// sees the publication when it looks again. If it published later, the peer reads the doorbell
// after the fence, and sees that this rank sleeps.
void Board::announce_sleep(std::uint32_t how) const {
  Doorbell& bell = doorbell(local_rank_);
  bell.sleeps.store(sleeps() + 1, std::memory_order_relaxed);
  bell.asleep.exchange(how, std::memory_order_seq_cst);
  if (bell.makes_barrier.load(std::memory_order_relaxed) == 0) return;
  bell.makes_barrier.store(0, std::memory_order_relaxed);
  if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) return;
  // The process may not call it any more. A ring that is lost now delays this rank until it wakes
  // by itself, once.
  bell.takes_barriers.store(0, std::memory_order_relaxed);
}

void Board::take_barriers() const {
#if !defined(__SANITIZE_THREAD__)  // the thread sanitizer does not know membarrier
  static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  if (registered) doorbell(local_rank_).takes_barriers.store(1, std::memory_order_release);
#endif
}

void Board::make_barrier() const {
  for (int rank = 0; rank < local_ranks_; ++rank) {
    if (doorbell(rank).takes_barriers.load(std::memory_order_acquire) == 0) return;
  }
  doorbell(local_rank_).makes_barrier.store(1, std::memory_order_relaxed);
}

bool Board::shares_core(int core) const {
  const auto mine = static_cast<std::uint32_t>(core + 1);
  doorbell(local_rank_).core.store(mine, std::memory_order_relaxed);
  for (int rank = 0; rank < local_ranks_; ++rank) {
    if (rank == local_rank_) continue;
    if (doorbell(rank).core.load(std::memory_order_relaxed) == mine) return true;
  }
  return false;
}

void Board::sleep(std::int64_t timeout_ns) const {
  timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  Doorbell& bell = doorbell(local_rank_);
  ::syscall(SYS_futex, &bell.asleep, FUTEX_WAIT, asleep_in_futex, &timeout, nullptr, 0);
  bell.asleep.store(awake, std::memory_order_seq_cst);
}

}  // namespace hocket::internal
