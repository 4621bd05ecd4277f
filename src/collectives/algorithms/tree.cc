// tree: ceil(log2 p) steps; for small messages between nodes.
//
// The binomial tree. With v = rank - root (mod p), the children of v are v + 2^i < p for each 2^i
// below the lowest set bit of v (the root: for each 2^i). The subtree of child v + 2^i has the
// ranks v + 2^i .. v + 2^(i+1) - 1. A rank has lanes for its parent and for each child: O(log p).
//
//        0          broadcast: down. A rank receives into its output and sends from there; chunk
//       / \         by chunk, so a long message is a pipeline. The larger subtree comes first.
//      1   2
//          |        reduce: up. A rank folds its input and its children's partial results, in this
//          3        order (v; v+1; v+2..v+3; ...), in one step. The root is shape.root.
//
//                   all-reduce: up to rank 0, then down.
//
//   rank 0            rank 1            rank 2            rank 3            an all-reduce's lanes
//   receives b        b > 0             receives d        d > 2             receive up / send up
//   receives c+d                                                            receive up
//   folds to r                          folds, c+d > 0                      fold; send up
//   r > 2                               receives r                          send / receive down
//   r > 1             receives r        r > 3             receives r        send / receive down
//
// Partial results are wide (trees.cc). Each subtree is folded before its parent's fold, so if p > 3
// the bits differ from those of the plans that fold in rank order.
//
// barrier: dissemination. In round i a rank sends to rank + 2^i and receives from rank - 2^i: half
// as many steps as up the tree and down again.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH" (IJHPCA 2005); of the barrier Hensgen, Finkel and Manber, "Two algorithms for barrier
// synchronization" (IJPP 1988).
#include <bit>

#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr std::uint32_t radix = 2;

TreePart whole_message(const Shape& shape) {
  return {.block = fixed(0), .most_children = most_nomial_children(shape, radix)};
}

}  // namespace

void tree_all_reduce(Plan& plan, const Shape& shape) {
  const TreeEdges edges = nomial_edges(shape, 0, radix);
  const TreePart part = whole_message(shape);
  plan.scratch_blocks = part.scratch_blocks();
  lay_result_down(plan, edges, part, lay_up(plan, edges, part));
}

void tree_reduce(Plan& plan, const Shape& shape) {
  const TreePart part = whole_message(shape);
  plan.scratch_blocks = part.scratch_blocks();
  lay_up(plan, nomial_edges(shape, narrowed<std::uint32_t>(shape.root), radix), part);
}

void tree_broadcast(Plan& plan, const Shape& shape) {
  lay_down(plan, nomial_edges(shape, narrowed<std::uint32_t>(shape.root), radix),
           whole_message(shape));
}

void tree_barrier(Plan& plan, const Shape& shape) {
  // The number of rounds in which the distance doubles until it reaches all ranks.
  const std::uint32_t rounds = std::bit_width(shape.ranks - 1);
  // Lane `receive` of a round ends after those of all earlier rounds, for the next send. It does
  // not delay its recv.
  const auto receive_lane = [](std::uint32_t round) { return 2 * round + 1; };
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::int64_t distance = std::int64_t{1} << round;
    const Index to = fixed((shape.rank + distance) % shape.ranks);
    const Index from = fixed((shape.rank + shape.ranks - distance) % shape.ranks);
    const Index tag = fixed(0);
    std::vector<Step> sends, receives = {recv_empty(from, tag)};
    if (round > 0) {
      const Step earlier = await_end(receive_lane(round - 1), fixed(0));
      sends.push_back(earlier);
      if (round + 1 < rounds) receives.push_back(earlier);
    }
    sends.push_back(send_empty(to, tag));
    plan.lanes.push_back(once("send", std::move(sends)));
    plan.lanes.push_back(once("receive", std::move(receives)));
  }
}

}  // namespace hocket::internal::algorithms
