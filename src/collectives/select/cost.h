// The price of an operation: the time that its plan takes with figures measured on this machine.
// Plans are walked (simulation.h); no algorithm is priced by its name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/algorithms/builders.h"
#include "collectives/select/figures.h"

namespace hocket::internal {

/// Limits of the simulation. The price of a larger operation is derived from that of a smaller one.
struct Effort {
  std::size_t most_chunks = 16;   // of a block; an even number
  std::uint32_t most_ranks = 32;  // of plans whose ranks are not alike; a power of two
  bool every_rank = false;        // simulates all ranks even if they are alike
};

/// What decides between algorithms of equal prices.
struct Effects {
  std::int64_t work_ps = 0;  // how long processors and links work for each rank
  std::int64_t mean_ps = 0;  // the time after which a rank has ended, averaged over the ranks
  // If ranks share processors: Times::hops. In each hop a rank waits for a processor, which takes
  // longer than the simulation says if threads outside of the job run there as well. 0 for large
  // rooted calls: a plan with few hops then has the disadvantage that one rank does all the work.
  // Also in collectives without a root of two ranks that have a core each: over TCP an all-reduce
  // of 64 KiB took 33 us with one hop (`one-shot`), and 42 us with two (`owner-fold`), and of 128
  // KiB 54 and 64 us, if the buffers were in the caches.
  std::uint32_t hops = 0;
};

/// The price in picoseconds of one operation with blocks of equal counts. It is the same on all
/// ranks: shape.rank and shape.root do not matter. Sends and receives have no price, because there
/// is no choice between algorithms. If effects is not null, *effects is set too.
std::int64_t price(const Builder& builder, const Shape& shape, std::size_t count, Dtype dtype,
                   std::size_t chunk_elements, const Figures& figures, const Effort& effort = {},
                   Effects* effects = nullptr);

}  // namespace hocket::internal
