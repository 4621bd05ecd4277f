// The plain interpreter: runs the plans of all ranks on real buffers in one thread, as simply as
// possible. It defines what a plan means: the tests compare the executor with it. It also runs
// plans that the verifier rejects, if their numbers are in range (check_form).
//
// The instances of the lanes run in a random order, which depends only on the seed. The random
// numbers also decide whether a send ends at once or when its message has been received.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "collectives/plan/extents.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Interpretation {
  Dtype dtype = Dtype::float32;
  Op op = Op::sum;
  std::uint64_t seed = 1;
  std::vector<std::uint64_t> scalars = {};  // of PreMulSum, by rank: see Fold::scalars
};

/// inputs[r], outputs[r]: the buffers of rank r, which may be in place; null if rank r has no such
/// buffer. sizes[r]: their extents. Returns an error if the plans deadlock or contradict one
/// another. Does not detect races.
Status interpret(std::span<const Plan> plans, std::span<const Sizes> sizes,
                 std::span<const void* const> inputs, std::span<void* const> outputs,
                 const Interpretation& of);

}  // namespace hocket::internal
