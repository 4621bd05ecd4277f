// The plain interpreter: runs the plans of all ranks on real buffers in one thread, in the plainest
// way there is. It says what a plan means; the executor is held against it, and a plan that the
// verifier doubts can be tried on it.
//
// Lanes take turns at random: a seed gives the same interleaving again. A send ends at once or when
// its message has been taken, at random too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Interpretation {
  std::size_t count = 0;  // elements, as the caller of the collective gives them
  Dtype dtype = Dtype::float32;
  Op op = Op::sum;
  std::size_t chunk_elements = 0;  // as for partition(); single_chunk plans take 0
  std::uint64_t seed = 1;
};

/// inputs[r], outputs[r]: of rank r (in place where they say so; null where a collective has none).
/// An error where the plans deadlock or contradict themselves; races are not looked for.
Status interpret(std::span<const Plan> plans, std::span<const void* const> inputs,
                 std::span<void* const> outputs, const Interpretation& of);

}  // namespace hocket::internal
