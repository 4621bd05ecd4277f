// one-shot: everybody copies its input to its scratch, everybody folds everybody's.
//
// One synchronisation in all: the arrival itself says that the scratch is filled. The price is
// traffic, p^2 + 3p passes over the data against 5p - 2 of the staged plan, so this is for a few
// KiB, where a second synchronisation would cost more than the bytes (DeepSpeed's and vLLM's
// shared-memory kernels use it; they fold own data first, and then ranks disagree in the last bit:
// here the order is the absolute rank order).
//
//   rank 0        rank 1        rank 2        rank 3
//   [scratch a]   [scratch b]   [scratch c]   [scratch d]   input -> own scratch, arrive
//      \_____________|____________|_____________/
//      await all, read 4 scratches: a+b+c+d -> output        (own part from the input)
//
// Scratch halves alternate by operation like the arrival lines, so nobody says "I have read it".
// reduce-scatter stages its blocks for the peers, each reads the one meant for it; broadcast: only
// the root stages, and nobody waits for anybody but the root.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

void one_shot_all_reduce(Plan& plan, const Shape& shape) {
  plan.single_chunk = true;
  plan.scratch_blocks = 1;
  plan.lanes = {{copy(0, input(0), {scratch(0)}), arrive(), await_arrival(),
                 finish(0, in_rank_order(shape, input(0), scratch(0)), {output(0)})}};
}

void one_shot_all_gather(Plan& plan, const Shape& shape) {
  plan.single_chunk = true;
  plan.scratch_blocks = 1;
  Steps lane = {copy(0, input(0), {scratch(0)}), arrive(),
                copy(shape.rank, input(0), {output(shape.rank)}), await_arrival()};
  for (int i = 1; i < shape.ranks; ++i) {  // from the right neighbour on: readers spread out
    const int r = (shape.rank + i) % shape.ranks;
    lane.push_back(copy(r, scratch(0, r), {output(r)}));
  }
  plan.lanes = {std::move(lane)};
}

void one_shot_reduce_scatter(Plan& plan, const Shape& shape) {
  plan.single_chunk = true;
  plan.scratch_blocks = shape.ranks;
  Steps lane;
  for (int r = 0; r < shape.ranks; ++r) {
    if (r != shape.rank) lane.push_back(copy(r, input(r), {scratch(r)}));
  }
  lane.push_back(arrive());
  lane.push_back(await_arrival());
  lane.push_back(finish(shape.rank, in_rank_order(shape, input(shape.rank), scratch(shape.rank)),
                        {output(0)}));
  plan.lanes = {std::move(lane)};
}

void one_shot_broadcast(Plan& plan, const Shape& shape) {
  plan.single_chunk = true;
  plan.scratch_blocks = 1;
  if (shape.rank == shape.root) {
    plan.lanes = {{copy(0, input(0), {scratch(0)}), arrive(), copy(0, input(0), {output(0)})}};
  } else {
    plan.lanes = {
        {arrive(), await_arrival(shape.root), copy(0, scratch(0, shape.root), {output(0)})}};
  }
}

}  // namespace hocket::internal::algorithms
