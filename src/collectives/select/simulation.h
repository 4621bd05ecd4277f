// The time of one operation, found by walking plans: a simulation in whole picoseconds.
//
// A simulated rank has a processor, on which its folds and its messages follow one another, and a
// link to the other ranks, which carries one message at a time in each direction. The lanes of its
// plan take turns on the processor: each one runs until it must wait, or has completed a chunk.
// What is ready first runs first.
//
// Where there are fewer processors than ranks, a rank runs on any of them, as the kernel lets it:
// an idle processor takes a rank that can go on. A rank that sleeps while it waits costs the
// processor a `turn` each time it runs again.
//
//   fold            bytes of all sources and destinations, on the processor, each at the rate of
//                   the place where it lies (below)
//   send            `work` and bytes x port on the processor; bytes x link on the link; then it has
//                   ended
//   recv            the message arrives `latency` after it has left the sender's link and passed
//                   this rank's link, where one message follows another. A message needs the same
//                   time for each of the two links, and both at once: the longer of `work` and
//                   bytes x link. So `work` is for both ends of a message. Then bytes x port on the
//                   processor
//   arrive          a peer sees it `sync` later
//   progress        a lane's flag, likewise
//   await           costs nothing
//
// Representatives. Simulating all ranks of a linear algorithm takes O(p^2) time. Where ranks are
// alike, one of them stands for all: it meets its own messages, sent at the same distance, and its
// own flags.
//
// Nodes. The ranks of a node share its link to the other nodes. A message within a node is copied
// by the processors of its two ranks and does not use that link. Where one rank stands for all, and
// n ranks are on each node, a message to rank r + d crosses between nodes for min(d, p - d, n) of
// them, at the same time: so many messages take their turns on the link.
//
// Ports. A processor copies the bytes of a message at both ends, and handles one message at a time,
// whatever its direction: where the processor is slower than the link, a rank that sends and
// receives at once takes twice as long. The receiver's copies while the message comes, as far as it
// has nothing else to do.
//
// Places. A byte lies in the processor's own caches, in those of a peer that has just written or
// read it, or in memory. Scratch that the ranks of a node share lies in a peer's cache when its
// owner writes it and when a peer reads it; if it does not fit, in memory. Buffers of the caller of
// more than `cached_buffer_bytes` lie in memory: a program that communicates so much touches other
// data meanwhile. A byte that is written in memory takes twice the time of one that is read: its
// line is read first, and written back later.
//
// What is not simulated: what else is in the caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "collectives/plan/extents.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

using Picoseconds = std::int64_t;

constexpr std::size_t cached_buffer_bytes = 4 << 10;

/// Whole numbers, so that all ranks get the same result.
struct Costs {
  Picoseconds sync = 0;
  Picoseconds latency = 0;
  Picoseconds work = 0;  // of the processor, for a message that is sent
  Picoseconds turn = 0;  // of the processor, before it runs another rank or one that has slept
  // Of a byte.
  std::int64_t femtoseconds_per_touch = 0;
  std::int64_t femtoseconds_of_peer = 0;    // which a peer has just written
  std::int64_t femtoseconds_of_memory = 0;  // in memory
  std::int64_t femtoseconds_of_memory_written = 0;
  std::int64_t femtoseconds_on_link = 0;
  std::int64_t femtoseconds_in_port = 0;

  /// Of a message within a node: its flag is seen, and the processors at both ends copy each byte,
  /// at the same time: from memory to where a peer has read, and from where a peer has written to
  /// memory.
  Picoseconds local_latency() const { return sync; }
  Picoseconds local_work() const { return std::min(work, sync); }
  std::int64_t femtoseconds_of_local() const {
    return femtoseconds_of_peer + femtoseconds_of_memory;
  }
};

/// Which ranks do the same at the same time.
enum class Alike : std::uint8_t {
  all,           // one plan: that of rank 0
  all_but_root,  // two plans: that of rank 0, which is the root, and that of the last rank
  none           // the plans of all ranks
};

struct Simulated {
  std::span<const Plan> plans;
  Alike alike = Alike::none;
  std::size_t processors = 1;      // which the simulated ranks share
  const Layout* layout = nullptr;  // null: each rank is on a node of its own, or all are on one
  Sizes sizes;                     // equal blocks
  std::size_t core_cache_bytes = 1 << 20;
  Dtype dtype = Dtype::int8;
  Costs costs;
};

struct Times {
  Picoseconds end = 0;      // the last rank has ended
  Picoseconds busiest = 0;  // how long that processor or link has worked that works longest
  // How long all processors and links have worked, and flags of peers were waited for, for each
  // rank.
  Picoseconds work = 0;
};

Times simulate(const Simulated& simulated);

}  // namespace hocket::internal
