// The verifier: proves that the plans of all ranks together do what the collective says.
//
// It runs all ranks at once on symbols. The content of a block is a symbol, such as "block 3 of
// ranks 0, 2 and 5, folded in this order, not finished", so one run stands for all data, types and
// sizes.
//
// It proves four properties. An error is a sentence that names rank, lane and step:
//   form      every number is in range; each flag has one writer; sends and recvs pair up by lane
//   progress  no deadlock, even if every send ends only when its recv has been posted
//   order     no race: the plan orders any two accesses to the same memory of which one is a write.
//             That includes the accesses of the caller before the rank begins and after it ends
//   answer    every output block of every rank has the right content: each contribution exactly
//             once, of the right block and chunk, finished exactly once, rounded nowhere else; out
//             of place and in place
//
// Why one run is enough. A step waits for counters that only grow, or for its partner. So a step
// that can run can still run later, the same steps run in whatever order the lanes do, and a plan
// that ends in one order ends in every order. Sends that end early (eager) only let more steps run,
// so for progress the run has the strictest rule: a send ends with its recv. For order it has the
// weakest rule: what precedes a send precedes what follows its recv, but no step of the receiver
// precedes what follows the send. With 2 x slots + 1 chunks every lag and every reuse of a slot
// occurs; up to 16 ranks, 1 and 2 chunks are run as well.
//
// Successive operations. Scratch and lines alternate between two halves, and a rank begins
// operation s only when all have arrived at s - 1, so that all have ended s - 2. Every load/store
// plan has exactly one `arrive`, which is checked, so accesses of two operations do not conflict.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Proof {
  Status status;
  bool rank_order = false;      // all ranks are folded one by one, in absolute rank order
  std::uint64_t steps_run = 0;  // in all runs together
};

/// plans[r]: the plan of rank r. chunk_counts: the numbers of chunks to run with; empty: as above.
Proof prove(std::span<const Plan> plans, std::vector<std::size_t> chunk_counts = {});

/// OK, or invalid_argument with a sentence that says what is wrong.
Status verify(std::span<const Plan> plans);

/// True if the bits of the result depend only on the number of ranks, as deterministic mode needs.
/// False for plans that do not verify.
bool folds_in_rank_order(std::span<const Plan> plans);

}  // namespace hocket::internal
