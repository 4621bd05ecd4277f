// What the selector knows about this machine.
#pragma once

#include <cstdint>

namespace hocket::internal {

/// Costs on this machine, measured when a communicator is made. All ranks use the figures of rank
/// 0, which do not change as long as the communicator exists. docs/TUNING.md explains them.
struct Figures {
  double sync_ns = 300;  // until all local ranks see one another's flags
  // Of an operation, without its plan. With several nodes 0, because message_ns contains it.
  double call_ns = 0;
  double cached_ns_per_byte = 0.05;  // one byte read or written by the processor, in its caches
  // The same for a byte that a peer has just written, and for a byte in memory, if it is more.
  // peer_non_temporal: for a byte that is written with non-temporal stores; 0: not measured.
  double peer_ns_per_byte = 0;
  double peer_non_temporal_ns_per_byte = 0;
  // The time of the same in copies of 4 KiB, with non-temporal stores, divided by that with
  // ordinary stores. 0: not measured.
  double small_non_temporal_ratio = 0;
  double memory_ns_per_byte = 0;
  // One byte folded into the memory of a rank and of a peer, and read there; all of it is in the
  // caches of both. push: the result is copied to the peer's memory; push_non_temporal: it is
  // stored there with non-temporal stores.
  double push_ns_per_byte = 0.1;
  double push_non_temporal_ns_per_byte = 0.2;
  double message_ns = 15'000;     // until a small message arrives, without message_overhead_ns
  double link_ns_per_byte = 0.8;  // one byte of a large message
  // Processor time for one byte of a large message, at each of its two ends.
  double port_ns_per_byte = 0;
  double message_overhead_ns = 3'000;  // processor time for a message, without its bytes
  std::uint64_t core_cache_bytes = 1 << 20;
  std::uint64_t node_cache_bytes = 32 << 20;
  // Processor time before a processor that ranks share runs another rank, or a rank that waited for
  // a message.
  double turn_ns = 0;
  double ranks_per_core = 1;
  // One byte that the kernel copies from the memory of another process. 0: no message is copied so,
  // because some rank may not, or because the two copies through shared memory take less time.
  double kernel_copy_ns_per_byte = 0;
};

/// True if it takes less time to write with non-temporal stores what peers read, and to read it
/// from memory, than to write it with ordinary stores, which first take the lines from the caches
/// of the peers. one_way: the data goes from or to the root. Else it must be so for small copies
/// too: on cores where only copies of about 64 KiB took less time (0.7 to 0.85), an all-gather of 4
/// KiB took 1.8 times as long with such stores, and of 1 MiB 1.5 times, but a broadcast of 16 to
/// 256 KiB 0.8 times.
inline bool non_temporal_is_faster(const Figures& figures, bool one_way) {
  constexpr double least_gain = 0.9;
  return figures.peer_non_temporal_ns_per_byte > 0 &&
         figures.peer_non_temporal_ns_per_byte < least_gain * figures.peer_ns_per_byte &&
         (one_way || figures.small_non_temporal_ratio < least_gain);
}

/// True if a line takes so long from core to core that a rank that runs ahead should prefetch the
/// scratch that it will write. With it, on cores that take 250 ns to see one another's flags, calls
/// of up to 2 KiB took 0.65 to 0.95 of the time; on cores that take 80 ns, some took 1.2 times as
/// long (docs/decisions/008-near-and-far-cores.md).
inline bool lines_come_late(const Figures& figures) {
  constexpr double least_ns = 150;
  return figures.ranks_per_core <= 1 && figures.sync_ns >= least_ns;
}

/// True if rooted collectives use more scratches than fit a core's first cache, so that a rank can
/// be far ahead of its peers (transport/shm/board.h).
inline bool uses_many_scratches(const Figures& figures) {
  return figures.ranks_per_core > 1 || lines_come_late(figures);
}

}  // namespace hocket::internal
