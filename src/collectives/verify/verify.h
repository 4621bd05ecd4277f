// The verifier: proves that the plans of all ranks together do what the collective says.
//
// It runs the plans of all ranks together on symbols. The content of a chunk of a block is a
// symbol, such as "item 3, chunk 1, of ranks 0, 2 and 5, folded in this order, not finished". So
// one run is a proof for all data and types, and for all sizes that have the same numbers of
// chunks.
//
// It proves four properties. An error is a sentence that names rank, lane, instance, step and
// chunk:
//   form      every number is in range for every instance; each flag is published by one lane; a
//             tag pairs one send with one recv, of the same item; lanes await and wait by chunk
//             only where both have the same chunks; a rank of a node arrives exactly once
//   progress  no deadlock, even if every send ends only when its recv has been posted
//   order     no race: the plan orders any two accesses to the same memory of which one is a write.
//             That includes the accesses of the caller before the rank begins and after it ends. A
//             rank has awaited the arrival of a peer before it accesses the peer's memory
//   answer    every output block of every rank has the right content: each contribution exactly
//             once, of the right item and chunk, finished exactly once where the collective
//             reduces, rounded nowhere else; out of place and in place
//
// Why one run is enough. A step waits for progress that only grows, or for the other end of its
// message. So a step that can run can still run later. Therefore the same steps run in every order
// of the lanes, and a plan that ends in one order ends in every order. Sends that end early (eager)
// only let more steps run. So to prove progress the run uses the strictest rule: a send ends with
// its recv. To prove order it uses the weakest rule: the steps before a send precede the steps
// after its recv, but no step of the receiver precedes the steps after the send. An instance starts
// when the instance `window` before it has ended; that orders their steps too.
//
// Numbers of chunks. A run gives every item a number of chunks. With 2 x slots + 1 chunks every lag
// and every reuse of a slot occurs. Up to 16 ranks, 1 and 2 chunks are run as well, and unequal
// numbers: in plans for varying blocks any mixture, in plans that cut a whole message the last
// blocks have fewer chunks. A deadlock that needs more chunks than a run has is found without a run
// (verify_progress.h).
//
// Scalars. In plans for widened data a source of a fold (which is no copy) is *plain* if it is not
// wide: it is an input as its rank gave it. PreMulSum multiplies a plain source in that fold, by
// the scalar of the rank whose buffer has it, or, if it is in own scratch, of the rank whose
// message brought it. That is right under two conditions: each plain source is the input of that
// rank, and no wide value, which was multiplied before, becomes narrow again without being
// finished. Then every input is multiplied exactly once, before it is rounded, and no partial
// result is multiplied.
//
// Successive operations. A rank writes the scratch and the line of an earlier operation again only
// when all ranks of its node have arrived at a later operation, and so have ended the earlier one
// (transport/shm/run_ahead.h); the step await_board waits for that. The verifier checks of each
// plan that uses the node that it arrives exactly once, that steps write only the scratch and the
// line of their own rank, and only after await_board, and that an arrival in this operation
// precedes every access to a peer's memory. So accesses of two operations do not conflict, whatever
// their plans are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Proof {
  Status status;
  bool rank_order = false;  // all ranks are folded one by one, in absolute rank order
  /// Of plans for widened data: OK, or why PreMulSum cannot use them. See "Scalars".
  Status scalars = {};
  std::uint64_t steps_run = 0;  // in all runs together
};

/// plans[r]: the plan of rank r. chunk_counts: for each run the number of chunks of every item
/// (base/collectives.h), each at least 1; empty: as above. Plans with single_chunk run with 1
/// chunk.
Proof prove(std::span<const Plan> plans, std::vector<std::vector<std::uint32_t>> chunk_counts = {});

/// OK, or invalid_argument with a sentence that says what is wrong.
Status verify(std::span<const Plan> plans);

/// True if the bits of the result depend only on the number of ranks, as deterministic mode needs.
/// False for plans that do not verify.
bool folds_in_rank_order(std::span<const Plan> plans);

}  // namespace hocket::internal
