// owner-fold: each block is sent to its owner, which folds it and sends the result to all ranks.
//
// A rank sends as many bytes as in a ring, 2(p-1)/p of the message, but no partial result is sent:
// fp16 is sent as fp16, and the owner folds it in fp32, in absolute rank order, and rounds it once.
// So the bits depend only on the number of ranks, and not on the size, the transport or the
// placement. Deterministic mode uses this plan, and operators that do not commute need it.
//
//   rank 0          rank 1          rank 2          rank 3
//   a1>1 a2>2 a3>3  b0>0 b2>2 b3>3  c0>0 c1>1 c3>3  d0>0 d1>1 d2>2   block j to rank j
//   a0+b0+c0+d0     a1+b1+c1+d1     a2+b2+c2+d2     a3+b3+c3+d3      owner folds -> output block
//   r0>1 2 3        r1>0 2 3        r2>0 1 3        r3>0 1 2         results to all ranks
//
// Every pair of ranks has two lanes for each direction (pairs.h), one for inputs and one for
// results, so that the results of a chunk are under way at the same time as the inputs of the next
// chunk. reduce-scatter is the first half. In place, a result overwrites an input block whose send
// may not have ended, so the lane that receives the result awaits the end of that send. A slot is
// used again when its fold has ended.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/pairs.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {
constexpr int owner_fold_slots = 2;
}

void owner_fold(Plan& plan, const Shape& shape) {
  const Pairs pairs{shape.ranks};
  const int mine = shape.rank, ranks = shape.ranks;
  const int folded = 2 * ranks;  // below: flag `peer`: sent; flag ranks + peer: received
  const bool gathers = shape.collective == Collective::all_reduce;
  const int fold_lane = pairs.lanes(), results = pairs.lanes() + 1;

  plan.slots = owner_fold_slots;
  plan.scratch_blocks = ranks - 1;
  plan.private_flags = 2 * ranks + 1;
  plan.lanes.resize(gathers ? results + pairs.lanes() : fold_lane + 1);
  Steps fold;
  std::vector<Range> parts(ranks, input(mine));
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == mine) continue;
    parts[peer] = scratch(block_of_peer(mine, peer));
    plan.lanes[pairs.lane(mine, peer)] = {send(peer, peer, input(peer)), signal(peer)};
    plan.lanes[pairs.lane(peer, mine)] = {await(folded, 1, owner_fold_slots),
                                          recv(peer, mine, parts[peer]), signal(ranks + peer)};
    fold.push_back(await(ranks + peer));
    if (!gathers) continue;
    plan.lanes[results + pairs.lane(mine, peer)] = {await(folded), send(peer, mine, output(mine))};
    plan.lanes[results + pairs.lane(peer, mine)] = {await(peer), recv(peer, peer, output(peer))};
  }
  fold.push_back(finish(mine, std::move(parts), {output(gathers ? mine : 0)}));
  fold.push_back(signal(folded));
  plan.lanes[fold_lane] = std::move(fold);
}

}  // namespace hocket::internal::algorithms
