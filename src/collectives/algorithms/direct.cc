// direct: the owner of a slice reads everybody's input and writes everybody's output, in place.
//
// Where peers can map the callers' buffers nothing is staged: 2p passes over memory for an
// all-reduce, the least possible (every input is read once, every output written once). Chunks only
// keep the lines of one fold in the owner's L2.
//
//             input 0   input 1   input 2   input 3
//   block 0   [ a0 ]    [ b0 ]    [ c0 ]    [ d0 ]   rank 0: a0+b0+c0+d0 -> block 0 of 4 outputs
//   block 1   [ a1 ]    [ b1 ]    [ c1 ]    [ d1 ]   rank 1: a1+b1+c1+d1 -> block 1 of 4 outputs
//   block 2   [ a2 ]    [ b2 ]    [ c2 ]    [ d2 ]   rank 2: ...
//   block 3   [ a3 ]    [ b3 ]    [ c3 ]    [ d3 ]   rank 3: ...
//
// In place, block r of every buffer is touched by rank r alone. The arrival says that a rank's
// buffers belong to the operation; flag `done` in the epilogue says that this rank has left all
// foreign buffers, and nobody returns before it has heard that from all who touch its own.
//
// all-gather pulls from the peers' inputs, reduce-scatter folds from them, broadcast pulls from the
// root's: these write no foreign memory. In a broadcast only the root has something to guard.
//
// Prologue: the same as staged's, so that an executor that finds a buffer unmapped goes on with
// staged's body. The scheme is known from XPMEM-based collectives (Hashmi et al., IPDPS'18).
#include <algorithm>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { done = 3 };  // not one of staged's

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
  // The own output first, which is near; then the peers', each rank beginning with another one.
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
