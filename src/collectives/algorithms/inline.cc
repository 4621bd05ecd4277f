// inline: the data is in the arrival line.
//
// Every rank publishes its arrival in a line of its own, and every peer reads that line to compare
// signatures. Up to line_payload_bytes of data in the same line cost almost nothing more, so the
// whole collective costs one read of a line for each peer. Every rank folds the lines of all ranks
// in absolute rank order, so all ranks get the same bits. The idea is from Open MPI's XHC
// ("imm_data" in the line of the flag); here it is an ordinary plan.
//
//   rank 0        rank 1        rank 2        rank 3
//   [flag|a]      [flag|b]      [flag|c]      [flag|d]     input -> own line, arrive
//      \_____________|____________|_____________/
//      await all, read 4 lines: a+b+c+d -> output           (each rank for itself)
//
// No line is rewritten while a peer reads it: lines alternate by operation, and no rank starts
// operation s before all local peers have arrived at s - 1 (src/transport/shm/board.h). A
// reduce-scatter writes its blocks for the peers one behind another into the line, so all of them
// together must fit. In a broadcast only the root has a payload, and the other ranks wait only for
// the root.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

Steps& only_lane(Plan& plan) {
  plan.single_chunk = true;
  return plan.lanes.emplace_back();
}

}  // namespace

void inline_all_reduce(Plan& plan, const Shape& shape) {
  only_lane(plan) = {copy(0, input(0), {line(0)}), arrive(), await_arrival(),
                     finish(0, in_rank_order(shape, line(0), line(0)), {output(0)})};
}

void inline_all_gather(Plan& plan, const Shape& shape) {
  Steps& lane = only_lane(plan);
  lane = {copy(0, input(0), {line(0)}), arrive(), await_arrival()};
  for (int r = 0; r < shape.ranks; ++r) {
    lane.push_back(copy(r, r == shape.rank ? input(0) : line(0, r), {output(r)}));
  }
}

void inline_reduce_scatter(Plan& plan, const Shape& shape) {
  Steps& lane = only_lane(plan);
  for (int r = 0; r < shape.ranks; ++r) {
    if (r != shape.rank) lane.push_back(copy(r, input(r), {line(r)}));
  }
  lane.push_back(arrive());
  lane.push_back(await_arrival());
  lane.push_back(
      finish(shape.rank, in_rank_order(shape, input(shape.rank), line(shape.rank)), {output(0)}));
}

void inline_broadcast(Plan& plan, const Shape& shape) {
  if (shape.rank == shape.root) {
    only_lane(plan) = {copy(0, input(0), {line(0)}), arrive(), copy(0, input(0), {output(0)})};
  } else {
    only_lane(plan) = {arrive(), await_arrival(shape.root),
                       copy(0, line(0, shape.root), {output(0)})};
  }
}

void inline_barrier(Plan& plan, const Shape&) { only_lane(plan) = {arrive(), await_arrival()}; }

}  // namespace hocket::internal::algorithms
