// staged: inputs are copied to scratch (staged), from which peers read them, in chunks so small
// that scratch stays in the caches; for buffers that peers cannot map.
//
// All-reduce. Rank r owns block r. Three lanes run over the chunks, each at its own chunk. Each
// publishes its progress in a flag:
//
//   rank 0           rank 1           rank 2           rank 3
//   stages 1 2 3     stages 0 2 3     stages 0 1 3     stages 0 1 2     stage, then flag `ready`
//   folds block 0:   folds block 1:   folds block 2:   folds block 3:   fold, when all are `ready`:
//   in,s1,s2,s3      s0,in,s2,s3      s0,s1,in,s3      s0,s1,s2,in      own input, scratch of peers
//   -> out, s0       -> out, s1       -> out, s2       -> out, s3       then flag `result`
//   copies 1 2 3     copies 2 3 0     copies 3 0 1     copies 0 1 2     collect, each from its
//                                                                       owner's scratch when that
//                                                                       has a `result`; `consumed`
//
// The owner of a block does not stage it, so the block with that number is free in the owner's
// scratch, and takes the result. One fold writes the result to the output and to scratch: 5p - 2
// passes over memory instead of 5p + 1. The fold is in absolute rank order.
//
// A rank arrives, and stages at once: only a lane that waits for a flag of a peer awaits its
// arrival.
//
// In a broadcast, an all-gather and a scatter, a lane of its own (`keep`) copies what goes from a
// rank's input to its own output, so that the peers need not wait for it. In an all-reduce the fold
// writes this part, because with far cores, whose scratch bypasses the caches, a copy from scratch
// to the output takes as long as the whole fold.
//
// Slots. Chunk k overwrites chunk k - `staged_slots` in scratch. Lane stage may overwrite its
// blocks when the peers have folded them: it waits until the flag `result` of all peers shows that
// chunk. Lane fold may overwrite the result when the peers have copied it: it waits for their flag
// `consumed` in the same way. In place, lane collect overwrites a chunk of the input with the
// result. It has been staged before, because the result exists only after all ranks were `ready`.
//
// The other collectives have fewer lanes: reduce-scatter stages and folds; all-gather, gather,
// scatter and all-to-all stage and collect; in a broadcast the root stages and its peers collect;
// in a reduce only the root collects. In root_fold.cc the root of a reduce folds all blocks.
//
// Source: Jain et al., "Framework for scalable intra-node collective operations using shared
// memory" (SC'18), in MPICH: release_gather. The literature calls the all-reduce a two-shot with
// copy-in and copy-out (CICO).
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { ready = 0, result = 1, consumed = 2 };

/// The number of chunks that are under way at once. On a machine with fewer cores than ranks, a
/// rank handles so many chunks before it waits for a rank that does not run.
constexpr int staged_slots = 4;

void begin(Plan& plan, std::uint32_t scratch_blocks) {
  plan.slots = staged_slots;
  plan.arrives_first = true;
  plan.scratch_blocks = scratch_blocks;
}

/// The lane that copies the input's blocks for the peers to scratch. It waits until flag `read` of
/// all peers says that they have read the former content of the slot.
Lane stage_for_peers(const Ranges& r, const Shape& shape, Flag read) {
  Steps steps = {wait_all(read, staged_slots)};
  for (std::uint32_t i = 1; i < shape.ranks; ++i) {
    const Index b = fixed((shape.rank + i) % shape.ranks);
    steps.push_back(copy(b, r.input(b), {r.scratch(b)}));
  }
  return publishing(all_blocks("stage", Buffer::input, std::move(steps)), ready);
}

/// The lane that copies each peer's block to the output when flag `there` of that peer says so.
/// block: of the peer's scratch; theirs: block q of the scratch of rank q instead.
Lane collect_from_peers(const Ranges& r, const Shape& shape, Flag there, Index block,
                        bool theirs = false) {
  Steps steps;
  for (std::uint32_t i = 1; i < shape.ranks; ++i) {
    const Index q = fixed((shape.rank + i) % shape.ranks);
    steps.push_back(wait(q, there));
    steps.push_back(copy(q, at(r.scratch(theirs ? q : block), q), {r.output(q)}));
  }
  return publishing(all_blocks("collect", Buffer::output, std::move(steps)), consumed);
}

std::vector<Range> staged_parts(const Ranges& r, const Shape& shape) {
  const Index own = fixed(shape.rank);
  return in_rank_order(shape.rank, shape.ranks, r.input(own), at(r.scratch(own), by_source(0)));
}

}  // namespace

void staged_all_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  begin(plan, shape.ranks);
  plan.lanes = {
      stage_for_peers(r, shape, result),
      publishing(all_blocks("fold", Buffer::input,
                            {wait_all(ready), wait_all(consumed, staged_slots),
                             finish(own, staged_parts(r, shape), {r.output(own), r.scratch(own)})}),
                 result),
      collect_from_peers(r, shape, result, {}, true)};
}

void staged_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  begin(plan, shape.ranks);
  plan.lanes = {stage_for_peers(r, shape, result)};
  if (shape.is_root()) {
    plan.lanes.push_back(publishing(
        all_blocks("fold", Buffer::input,
                   {wait_all(ready), finish(own, staged_parts(r, shape), {r.output(own)})}),
        result));
    plan.lanes.push_back(collect_from_peers(r, shape, result, {}, true));
  } else {
    plan.lanes.push_back(
        publishing(all_blocks("fold", Buffer::input,
                              {wait_all(ready), wait(fixed(shape.root), consumed, staged_slots),
                               finish(own, staged_parts(r, shape), {r.scratch(own)})}),
                   result));
  }
}

void staged_reduce_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  begin(plan, shape.ranks);
  plan.lanes = {
      stage_for_peers(r, shape, consumed),
      publishing(all_blocks("fold", Buffer::input,
                            {wait_all(ready), finish(fixed(shape.rank), staged_parts(r, shape),
                                                     {r.output(fixed(0))})}),
                 consumed)};
}

void staged_broadcast(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index whole = fixed(0), root = fixed(shape.root);
  begin(plan, 1);
  if (shape.is_root()) {
    plan.lanes = {
        publishing(all_blocks("stage", Buffer::output,
                              {wait_all(consumed, staged_slots),
                               copy(whole, r.input(whole), {r.scratch(whole)})}),
                   ready),
        all_blocks("keep", Buffer::output, {copy(whole, r.input(whole), {r.output(whole)})})};
  } else {
    plan.lanes = {publishing(
        all_blocks("collect", Buffer::output,
                   {wait(root, ready), copy(whole, at(r.scratch(whole), root), {r.output(whole)})}),
        consumed)};
  }
}

void staged_all_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank), only = fixed(0);
  begin(plan, 1);
  plan.lanes = {publishing(all_blocks("stage", Buffer::output,
                                      {wait_all(consumed, staged_slots),
                                       copy(own, r.input(only), {r.scratch(only)})}),
                           ready),
                all_blocks("keep", Buffer::output, {copy(own, r.input(only), {r.output(own)})}),
                collect_from_peers(r, shape, ready, only)};
}

void staged_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank), only = fixed(0);
  begin(plan, 1);
  if (shape.is_root()) {
    Lane collect = collect_from_peers(r, shape, ready, only);
    collect.steps.insert(collect.steps.begin(), copy(own, r.input(only), {r.output(own)}));
    plan.lanes = {std::move(collect)};
  } else {
    plan.lanes = {publishing(all_blocks("stage", Buffer::output,
                                        {wait(fixed(shape.root), consumed, staged_slots),
                                         copy(own, r.input(only), {r.scratch(only)})}),
                             ready)};
  }
}

void staged_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank), root = fixed(shape.root);
  begin(plan, shape.ranks);
  if (shape.is_root()) {
    plan.lanes = {
        stage_for_peers(r, shape, consumed),
        all_blocks("keep", Buffer::input, {copy(own, r.input(own), {r.output(fixed(0))})})};
  } else {
    plan.lanes = {publishing(
        all_blocks("collect", Buffer::input,
                   {wait(root, ready), copy(own, at(r.scratch(own), root), {r.output(fixed(0))})}),
        consumed)};
  }
}

void staged_all_to_all(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  begin(plan, shape.ranks);
  Lane collect = collect_from_peers(r, shape, ready, own);
  collect.steps.insert(collect.steps.begin(), copy(own, r.input(own), {r.output(own)}));
  plan.lanes = {stage_for_peers(r, shape, consumed), std::move(collect)};
}

}  // namespace hocket::internal::algorithms
