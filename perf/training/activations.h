// The memory of activations, as computed before and as allocated.
#pragma once

#include <nlohmann/json.hpp>

#include "models.h"

namespace lab {

/// Bytes of a step of this rank:
///   computed: what checkpointing all blocks saves, by activation_bytes() of each block;
///   plain, checkpointed: what libtorch's CPU allocator has given out between the begin and the end
///   of the forward and not taken back, with blocks that are called plainly and by checkpoint().
/// Throws std::invalid_argument for a workload without blocks.
nlohmann::json count_activations(const Workload& workload, int rank);

}  // namespace lab
