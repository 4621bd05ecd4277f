// The verifier: proves that the plans of all ranks together do what the collective says.
//
// It runs all ranks at once on symbols. A block of data is "block 3 of ranks 0, 2 and 5, folded in
// this order, not yet finished", never a number, so one run stands for all data, types and sizes.
//
// What it proves, each a sentence that names rank, lane and step where it fails:
//   form      every number is in range; flags have one writer; messages pair up, lane by lane
//   progress  no deadlock, even where every send ends only when its recv has been posted
//   order     no race: any two accesses to one place, one of them a write, are ordered by the plan;
//             so too for the caller, who owns its buffers before a rank begins and after it ends
//   answer    every output block of every rank holds what it should: each contribution exactly
//             once, of the right block and chunk, finished exactly once, rounded nowhere else; out
//             of place and in place
//
// Why one run is enough. A step waits for counters that only grow, or for its partner, so a step
// that may go on may go on for ever: whatever order the lanes run in, the same steps happen, and a
// deadlock found in no run of one order exists in no other. Sends that end early (eager) only let
// more steps go on, so the strictest rule is the one to test for progress. For order it is the
// other way round: nothing is taken to be known by a sender about its receiver. With 2 x slots + 1
// chunks every lag and every reuse of a slot occurs; up to 16 ranks, 1 and 2 chunks are run as
// well.
//
// From one operation to the next. Scratch and lines alternate between two halves, and a rank begins
// operation s only when all have arrived at s - 1, so have left s - 2: with exactly one `arrive` in
// every load/store plan, which is checked, no access of an operation can meet one of another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Proof {
  Status status;
  bool rank_order = false;      // every fold is in absolute rank order, nothing folded in groups
  std::uint64_t steps_run = 0;  // for people
};

/// plans[r]: of rank r. chunk_counts: runs of so many chunks; empty: as above.
Proof prove(std::span<const Plan> plans, std::vector<std::size_t> chunk_counts = {});

/// invalid_argument with a sentence where anything is wrong.
Status verify(std::span<const Plan> plans);

/// Whether the result's bits depend on nothing but the number of ranks: what deterministic mode may
/// use. False for plans that do not verify.
bool folds_in_rank_order(std::span<const Plan> plans);

}  // namespace hocket::internal
