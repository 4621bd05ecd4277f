// direct: the owner of a block reads the inputs and writes the outputs of all ranks, in the buffers
// of their callers.
//
// If peers can map the callers' buffers, no data is staged. An all-reduce makes 2p passes over
// memory, which is the minimum: every input is read once, every output is written once. Chunks only
// keep the cache lines of one fold in the owner's L2 cache.
//
//             input 0   input 1   input 2   input 3
//   block 0   [ a0 ]    [ b0 ]    [ c0 ]    [ d0 ]   rank 0: a0+b0+c0+d0 -> block 0 of 4 outputs
//   block 1   [ a1 ]    [ b1 ]    [ c1 ]    [ d1 ]   rank 1: a1+b1+c1+d1 -> block 1 of 4 outputs
//   block 2   [ a2 ]    [ b2 ]    [ c2 ]    [ d2 ]   rank 2: ...
//   block 3   [ a3 ]    [ b3 ]    [ c3 ]    [ d3 ]   rank 3: ...
//
// In place, only rank r accesses block r of every buffer. By its arrival a rank hands its buffers
// over to the operation. Flag `done` in the epilogue says that a rank does not access the buffers
// of its peers any more. A rank returns after it has waited for flag `done` of all peers that
// access its buffers.
//
// all-gather copies from the inputs of the peers, reduce-scatter folds them, broadcast copies from
// the input of the root: these three write to no memory of a peer. In a broadcast peers access only
// the buffer of the root, so only the root waits for flag `done`.
//
// The prologue is that of `staged`: an executor that finds a buffer unmapped continues with the
// body of `staged`. The scheme is known from XPMEM-based collectives (Hashmi et al., IPDPS'18).
#include <algorithm>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { done = 3 };  // no flag of `staged`

void with_exit_barrier(Plan& plan) {
  plan.maps_input = true;
  plan.prologue = arrival_barrier();
  plan.epilogue = {notify(done), wait(done)};
}

}  // namespace

void direct_all_reduce(Plan& plan, const Shape& shape) {
  const int mine = shape.rank;
  with_exit_barrier(plan);
  plan.maps_output = true;
  // This rank's output is first, because it is near; then the peers' outputs, beginning with
  // another peer on each rank.
  std::vector<Range> outputs = in_rank_order(shape, output(mine), output(mine));
  std::rotate(outputs.begin(), outputs.begin() + mine, outputs.end());
  plan.lanes = {{finish(mine, in_rank_order(shape, input(mine), input(mine)), outputs)}};
}

void direct_reduce_scatter(Plan& plan, const Shape& shape) {
  const int mine = shape.rank;
  with_exit_barrier(plan);
  plan.lanes = {{finish(mine, in_rank_order(shape, input(mine), input(mine)), {output(0)})}};
}

void direct_all_gather(Plan& plan, const Shape& shape) {
  with_exit_barrier(plan);
  Steps lane;
  for (int i = 0; i < shape.ranks; ++i) {
    const int r = (shape.rank + i) % shape.ranks;
    lane.push_back(copy(r, i == 0 ? input(0) : input(0, r), {output(r)}));
  }
  plan.lanes = {std::move(lane)};
}

void direct_broadcast(Plan& plan, const Shape& shape) {
  with_exit_barrier(plan);
  const bool is_root = shape.rank == shape.root;
  plan.lanes = {{copy(0, is_root ? input(0) : input(0, shape.root), {output(0)})}};
  plan.epilogue = {is_root ? wait(done) : notify(done)};
}

}  // namespace hocket::internal::algorithms
