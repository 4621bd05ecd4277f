// staged: two-shot through scratch that stays in the caches, for buffers that peers cannot map.
//
// All-reduce. Rank r owns block r. Three lanes run over the chunks, so that one chunk is staged
// while another is folded and a third is collected:
//
//   rank 0           rank 1           rank 2           rank 3
//   stages 1 2 3     stages 0 2 3     stages 0 1 3     stages 0 1 2     lane 0, then notify ready
//   folds 0:         folds 1:         folds 2:         folds 3:         lane 1, when all are ready:
//   in,s1,s2,s3      s0,in,s2,s3      s0,s1,in,s3      s0,s1,s2,in        own part from the input;
//   -> out, s[0]     -> out, s[1]     -> out, s[2]     -> out, s[3]       then notify result
//   copies 1 2 3     copies 2 3 0     copies 3 0 1     copies 0 1 2     lane 2, each when its owner
//   from s of owner  from s of owner  from s of owner  from s of owner    has one, then consumed
//
// The owner of a block does not stage it, so the block with that number is free in the owner's
// scratch, and takes the result. One fold writes the result to the output and to scratch: 5p - 2
// passes over memory instead of 5p + 1. The fold is in absolute rank order.
//
// A slot is used again `staged_slots` chunks later. By then peers have read the staged blocks: each
// has notified `result` of that chunk (lane 0 waits for `result` with lag). And peers have read the
// result: each has notified `consumed` (lane 1 waits for `consumed` with lag). In place, lane 2
// overwrites input block j with the result. The result exists only after all ranks were ready, so
// lane 0 has staged input block j of that chunk before.
//
// The other collectives have fewer lanes: reduce-scatter stages and folds, all-gather stages and
// collects, a broadcast has one lane, in which the root stages and its peers collect. The number of
// passes, and the idea that an owner does not stage its own block, are known as "CICO two-shot" in
// the literature on shared-memory collectives (Jain et al., SC'18; MPICH release_gather).
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { ready = 0, result = 1, consumed = 2 };

/// The number of chunks that are under way at once. On a machine with fewer cores than ranks, a
/// rank handles so many chunks before it waits for a rank that does not run.
constexpr int staged_slots = 4;

/// The lane that copies the blocks for the peers to scratch. It waits until flag `read` of all
/// peers says that they have read the former content of the slot.
Steps stage_for_peers(const Shape& shape, Flag read) {
  Steps lane = {wait(read, own, staged_slots)};
  for (int i = 1; i < shape.ranks; ++i) {
    const int r = (shape.rank + i) % shape.ranks;
    lane.push_back(copy(r, input(r), {scratch(r)}));
  }
  lane.push_back(notify(ready));
  return lane;
}

/// The lane that copies each peer's block to the output when flag `there` of that peer is notified.
Steps collect(const Shape& shape, Flag there, bool own_blocks) {
  Steps lane;
  for (int i = 1; i < shape.ranks; ++i) {
    const int r = (shape.rank + i) % shape.ranks;
    lane.push_back(wait(there, r));
    lane.push_back(copy(r, scratch(own_blocks ? r : 0, r), {output(r)}));
  }
  lane.push_back(notify(consumed));
  return lane;
}

void with_arrival_barrier(Plan& plan) {
  plan.slots = staged_slots;
  plan.prologue = arrival_barrier();
}

}  // namespace

void staged_all_reduce(Plan& plan, const Shape& shape) {
  with_arrival_barrier(plan);
  const int mine = shape.rank;
  plan.scratch_blocks = shape.ranks;
  plan.lanes = {stage_for_peers(shape, result),
                {wait(ready), wait(consumed, own, staged_slots),
                 finish(mine, in_rank_order(shape, input(mine), scratch(mine)),
                        {output(mine), scratch(mine)}),
                 notify(result)},
                collect(shape, result, true)};
}

void staged_reduce_scatter(Plan& plan, const Shape& shape) {
  with_arrival_barrier(plan);
  const int mine = shape.rank;
  plan.scratch_blocks = shape.ranks;
  plan.lanes = {
      stage_for_peers(shape, consumed),
      {wait(ready), finish(mine, in_rank_order(shape, input(mine), scratch(mine)), {output(0)}),
       notify(consumed)}};
}

void staged_all_gather(Plan& plan, const Shape& shape) {
  with_arrival_barrier(plan);
  plan.scratch_blocks = 1;
  plan.lanes = {{wait(consumed, own, staged_slots),
                 copy(shape.rank, input(0), {scratch(0), output(shape.rank)}), notify(ready)},
                collect(shape, ready, false)};
}

void staged_broadcast(Plan& plan, const Shape& shape) {
  with_arrival_barrier(plan);
  plan.scratch_blocks = 1;
  if (shape.rank == shape.root) {
    plan.lanes = {{wait(consumed, own, staged_slots), copy(0, input(0), {scratch(0), output(0)}),
                   notify(ready)}};
  } else {
    plan.lanes = {
        {wait(ready, shape.root), copy(0, scratch(0, shape.root), {output(0)}), notify(consumed)}};
  }
}

}  // namespace hocket::internal::algorithms
