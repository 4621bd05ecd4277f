// one-shot: every rank copies its input to its scratch, and folds the inputs of all ranks.
//
// It needs one synchronisation: the arrival says that the scratch is filled. It makes p^2 + 3p
// passes over the data, the staged plan makes 5p - 2, so this plan is for a few KiB, where a second
// synchronisation would cost more than the additional passes. The shared-memory kernels of
// DeepSpeed and vLLM use it too. They fold the data of their own rank first, so that ranks differ
// in the last bit; here the order is the absolute rank order.
//
//   rank 0        rank 1        rank 2        rank 3
//   [scratch a]   [scratch b]   [scratch c]   [scratch d]   input -> own scratch, arrive
//      \_____________|____________|_____________/
//      await all, read 4 scratches: a+b+c+d -> output        (own part from the input)
//
// Scratch halves alternate by operation like the arrival lines, so no rank has to say that it has
// read the scratch of a peer. A reduce-scatter copies the blocks for the peers to scratch, and each
// peer reads its own block. In a broadcast only the root copies to scratch, and the other ranks
// wait only for the root.
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
  for (int i = 1; i < shape.ranks; ++i) {  // each rank begins with another peer
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
