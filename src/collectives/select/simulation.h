// The time of one operation, found by walking plans: a simulation in whole picoseconds.
//
// A simulated rank has a processor, on which its folds and its sends follow one another, and a link
// to the other ranks, which carries one message at a time in each direction. The lanes of its plan
// take turns on the processor: each one runs until it must wait, or has completed a chunk. What is
// ready first runs first.
//
//   fold            bytes of all sources and destinations x touch, on the processor
//   send            `work` on the processor; then bytes x link on the link, then it has ended
//   recv            ends `latency` after the message has left the sender's link and has passed this
//                   rank's link, where one message follows another. A message needs the same time
//                   for each of the two links, and both at once: the longer of `work` and bytes x
//                   link. So `work` is for both ends of a message
//   arrive          a peer sees it `sync` later
//   progress        a lane's flag, likewise
//   await           costs nothing
//
// Representatives. Simulating all ranks of a linear algorithm takes O(p^2) time. Where ranks are
// alike, one of them stands for all: it meets its own messages, sent at the same distance, and its
// own flags.
//
// Nodes. The ranks of a node share its link to the other nodes. A message within a node takes the
// processor's time for its bytes four times (two copies) and does not use that link. Where one rank
// stands for all, and n ranks are on each node, a message to rank r + d crosses between nodes for
// min(d, p - d, n) of them, at the same time: so many messages take their turns on the link.
//
// What is not simulated: the caches, and that the bytes of a message need a processor too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "collectives/plan/extents.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

using Picoseconds = std::int64_t;

/// Whole numbers, so that all ranks get the same result.
struct Costs {
  Picoseconds sync = 0;
  Picoseconds latency = 0;
  Picoseconds work = 0;                     // of the processor, for a message that is sent
  std::int64_t femtoseconds_per_touch = 0;  // of a byte
  std::int64_t femtoseconds_on_link = 0;    // of a byte

  /// Of a message within a node, which is copied twice and acknowledged.
  Picoseconds local_latency() const { return std::min(latency, 3 * sync); }
  Picoseconds local_work() const { return std::min(work, sync); }
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
  Dtype dtype = Dtype::int8;
  Costs costs;
};

struct Times {
  Picoseconds end = 0;      // the last rank has ended
  Picoseconds busiest = 0;  // how long that processor or link has worked that works longest
};

Times simulate(const Simulated& simulated);

}  // namespace hocket::internal
