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

/// The price in picoseconds of one operation with blocks of equal counts. It is the same on all
/// ranks: shape.rank and shape.root do not matter. Sends and receives have no price, because there
/// is no choice between algorithms. If work is not null, *work receives how long processors and
/// links work for each rank.
std::int64_t price(const Builder& builder, const Shape& shape, std::size_t count, Dtype dtype,
                   std::size_t chunk_elements, const Figures& figures, const Effort& effort = {},
                   std::int64_t* work = nullptr);

}  // namespace hocket::internal
