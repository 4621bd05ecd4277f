// root-fold: a reduce in which the root reads the scratch of all peers, and folds all of it itself;
// for few ranks whose buffers peers cannot map.
//
// Each rank has one lane, over the chunks of the message, which is one block. The lane publishes
// its progress in a flag:
//
//   root 0           rank 1           rank 2           rank 3
//                    [scratch b]      [scratch c]      [scratch d]     stage: input -> own scratch,
//                                                                      then flag `ready`
//   a+b+c+d -> out                                                     fold, when all are `ready`,
//                                                                      then flag `consumed`
//
// The root makes p + 1 passes over memory, and each peer two. In the reduce of staged.cc, in which
// each rank folds a block, the root makes 5 - 3 / p passes, and each peer 3 - 1 / p. So with up to
// 3 ranks no rank makes more passes here than there; with more ranks the root does. The root reads
// its own input where it is. The fold is in absolute rank order.
//
// Slots. Chunk k overwrites chunk k - `slots` in the scratch of a peer, when the flag `consumed` of
// the root shows that it has folded that chunk.
//
// Source: Jain et al., "Framework for scalable intra-node collective operations using shared
// memory" (SC'18), in MPICH: release_gather, with a tree of one level.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { ready = 0, consumed = 2 };  // the numbers of these flags in staged.cc

/// As in staged.cc.
constexpr int slots = 4;

}  // namespace

void root_fold(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index whole = fixed(0), root = fixed(shape.root);
  plan.slots = slots;
  plan.arrives_first = true;
  plan.scratch_blocks = 1;
  if (shape.is_root()) {
    const std::vector<Range> sources =
        in_rank_order(shape.rank, shape.ranks, r.input(whole), at(r.scratch(whole), by_source(0)));
    plan.lanes = {
        publishing(all_blocks("fold", Buffer::input,
                              {wait_all(ready), finish(whole, sources, {r.output(whole)})}),
                   consumed)};
  } else {
    plan.lanes = {publishing(
        all_blocks("stage", Buffer::input,
                   {wait(root, consumed, slots), copy(whole, r.input(whole), {r.scratch(whole)})}),
        ready)};
  }
}

}  // namespace hocket::internal::algorithms
