// The price of an operation: the time that its plan takes with figures measured on this machine.
// Plans are walked (simulation.h); no algorithm is priced by its name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/algorithms/builders.h"
#include "collectives/select/figures.h"

namespace hocket::internal {

/// How much of an operation is simulated. The price of the rest is derived from it.
struct Effort {
  std::size_t most_chunks = 16;   // of a block; an even number
  std::uint32_t most_ranks = 32;  // of plans whose ranks are not alike; a power of two
  bool every_rank = false;        // also where ranks are alike
};

/// Picoseconds of one operation with blocks of equal counts. It is the same on all ranks:
/// shape.rank and shape.root do not matter. Sends and receives have no price: there is no choice
/// between algorithms.
/// *work receives, if it is given, how long processors and links work for each rank.
std::int64_t price(const Builder& builder, const Shape& shape, std::size_t count, Dtype dtype,
                   std::size_t chunk_elements, const Figures& figures, const Effort& effort = {},
                   std::int64_t* work = nullptr);

}  // namespace hocket::internal
