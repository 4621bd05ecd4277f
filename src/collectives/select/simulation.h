// The time of one operation, computed by a simulation of its plans in whole picoseconds.
//
// A simulated rank has a processor, which runs its folds and the work for its messages one after
// another, and a link to the other ranks, which carries one message at a time in each direction.
// The lanes of its plan take turns on the processor: each lane runs until it must wait, or has
// completed a chunk. The lane that is ready first runs first.
//
// If there are fewer processors than ranks, a rank may run on any processor, as in the kernel: an
// idle processor takes a rank that can go on. A rank that sleeps while it waits costs the processor
// a `turn` each time it runs again.
//
//   fold            bytes of all sources and destinations, on the processor, each at the rate of
//                   the place where it lies (below)
//   send            `work` and bytes x port on the processor; bytes x link on the link; then it has
//                   ended
//   recv            the message arrives `latency` after it has left the sender's link and passed
//                   this rank's link, which passes one message after another. A message occupies
//                   both links at once, for the longer of `work` and bytes x link. So `work` is for
//                   both ends of a message. Then bytes x port on the processor
//   arrive          a peer sees it `sync` later
//   progress        a lane's flag, likewise
//   await           costs nothing
//
// Representatives. Simulating all ranks of a linear algorithm takes O(p^2) time. If ranks are
// alike, one rank is simulated for all: it receives the messages that it sends to a rank at the
// same distance, and it sees its own flags.
//
// Nodes. The ranks of a node share its link to the other nodes. A message within a node is copied
// by the processors of its two ranks and does not use that link. If one rank is simulated for all,
// and n ranks are on each node, then of the messages from each rank r of a node to rank r + d,
// min(d, p - d, n) leave the node at the same time, and take turns on the link.
//
// Ports. The processors at both ends copy the bytes of a message. A processor handles one message
// at a time, whatever its direction. So if the processor is slower than the link, a rank that sends
// and receives at once takes twice as long. The receiver's processor copies while the message
// arrives, unless it is busy. Where ranks share processors, the receiver copies a message after it
// has arrived, as soon as a processor runs the receiver.
//
// Places. A byte is in the processor's own caches, in the caches of a peer that has just written or
// read it, or in memory. Scratch that the ranks of a node share is in a peer's cache when its owner
// writes it and when a peer reads it; if it does not fit there, it is in memory. Buffers of the
// caller of more than `cached_buffer_bytes` are in memory, because a program that communicates so
// much data uses other data meanwhile. Writing a byte in memory takes twice the time of reading it:
// its line is read first, and written back later. A range of the input that an earlier step has
// copied or sent is in the processor's own cache, if the whole input is no longer than that cache.
//
// Other contents of the caches are not simulated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "collectives/plan/extents.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

using Picoseconds = std::int64_t;

constexpr std::size_t cached_buffer_bytes = 4 << 10;

/// The costs of the simulation, in whole numbers, so that all ranks get the same result.
struct Costs {
  Picoseconds sync = 0;
  Picoseconds latency = 0;
  Picoseconds work = 0;  // of the processor, for a message that is sent
  Picoseconds turn = 0;  // of the processor, before it runs another rank or one that has slept
  // Of the processor, to find the regions of its own buffers and to map those of a peer:
  Picoseconds find_regions = 0, map_peer = 0;
  // The time to read or write one byte:
  std::int64_t femtoseconds_per_touch = 0;  // in the processor's own caches
  std::int64_t femtoseconds_of_peer = 0;    // that a peer has just written
  std::int64_t femtoseconds_of_memory = 0;  // in memory
  std::int64_t femtoseconds_of_memory_written = 0;
  std::int64_t femtoseconds_on_link = 0;
  std::int64_t femtoseconds_in_port = 0;
  std::int64_t femtoseconds_of_kernel_copy = 0;  // 0: the kernel copies no messages

  /// The costs of a message within a node: the time until its receiver runs and sees its flag, and
  /// the time in which the processors at both ends copy each byte. The sender copies from memory to
  /// bytes that a peer has read, the receiver from bytes that a peer has written to memory.
  Picoseconds local_latency() const { return sync + turn; }
  Picoseconds local_work() const { return std::min(work, sync); }
  std::int64_t femtoseconds_of_local_send() const {
    return femtoseconds_of_peer + femtoseconds_of_memory;
  }
  std::int64_t femtoseconds_of_local_recv() const {
    return femtoseconds_of_peer + femtoseconds_of_memory_written;
  }
};

/// Says which ranks do the same at the same time, and so which plans are simulated.
enum class Alike : std::uint8_t {
  all,           // one plan: that of rank 0
  all_but_root,  // two plans: that of rank 0, which is the root, and that of the last rank
  none           // the plans of all ranks
};

struct Simulated {
  std::span<const Plan> plans;
  Alike alike = Alike::none;
  std::size_t processors = 1;      // the simulated ranks share them
  const Layout* layout = nullptr;  // null: each rank is on a node of its own, or all are on one
  Sizes sizes;                     // equal blocks
  std::size_t core_cache_bytes = 1 << 20;
  Dtype dtype = Dtype::int8;
  Costs costs;
};

struct Times {
  Picoseconds end = 0;       // the last rank has ended
  Picoseconds mean_end = 0;  // a rank has ended, averaged over the ranks
  Picoseconds busiest = 0;   // the longest working time of any processor or link
  // The working time of all processors and links, and the waits for flags of peers, per rank.
  Picoseconds work = 0;
  // The longest chain of messages that depend on one another. Only first chunks count: further
  // chunks take the same ways.
  std::uint32_t hops = 0;
};

Times simulate(const Simulated& simulated);

}  // namespace hocket::internal
