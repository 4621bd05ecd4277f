// one-shot: every rank copies its input to its scratch, and every reader reads the scratch of all
// ranks.
//
// It needs one synchronisation: the arrival says that the scratch is filled. An all-reduce makes
// p^2 + 3p passes over the data, the staged plan makes 5p - 2, so this plan is for a few KiB, where
// a second synchronisation would cost more than the additional passes. The fold is in absolute rank
// order, so all ranks get the same bits.
//
//   rank 0        rank 1        rank 2        rank 3
//   [scratch a]   [scratch b]   [scratch c]   [scratch d]   input -> own scratch, arrive
//      \_____________|____________|_____________/
//      await all, read 4 scratches: a+b+c+d -> output        (own part from the input)
//
// Successive operations use several scratches of a rank in turn. A rank writes to a scratch again
// only when all peers have ended the operation that used it before (src/transport/shm/run_ahead.h),
// so no rank has to say that it has read the scratch of a peer. Where a rank has a block for each
// peer (reduce-scatter, scatter, all-to-all), it copies all of them to scratch, and each peer reads
// its own block. In a rooted collective a rank fills its scratch only if another rank reads it, and
// a rank waits only for peers whose scratch it reads.
//
// Source: no publication known; the same idea: the shared-memory all-reduces of DeepSpeed and vLLM
// for small messages. They fold the data of their own rank first, so that ranks differ in the last
// bit.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

void only_lane(Plan& plan, Buffer extents, std::uint32_t scratch_blocks, Steps steps) {
  plan.single_chunk = true;
  plan.scratch_blocks = scratch_blocks;
  plan.lanes = {all_blocks("all", extents, std::move(steps))};
}

/// Copies of all blocks of the input but that of this rank to scratch.
Steps fill_scratch(const Ranges& r, const Shape& shape) {
  Steps steps;
  for (std::uint32_t b = 0; b < shape.ranks; ++b) {
    if (b != shape.rank) steps.push_back(copy(fixed(b), r.input(fixed(b)), {r.scratch(fixed(b))}));
  }
  return steps;
}

/// Copies of scratch block `block` of every peer to the blocks of the output. Each rank begins with
/// another peer.
void collect(const Ranges& r, const Shape& shape, Index block, Steps& steps) {
  for (std::uint32_t i = 1; i < shape.ranks; ++i) {
    const Index q = fixed((shape.rank + i) % shape.ranks);
    steps.push_back(copy(q, at(r.scratch(block), q), {r.output(q)}));
  }
}

}  // namespace

void one_shot_all_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index whole = fixed(0);
  only_lane(plan, Buffer::input, 1,
            {copy(whole, r.input(whole), {r.scratch(whole)}), arrive(), await_arrival(),
             finish(whole,
                    in_rank_order(shape.rank, shape.ranks, r.input(whole),
                                  at(r.scratch(whole), by_source(0))),
                    {r.output(whole)})});
}

void one_shot_reduce(Plan& plan, const Shape& shape) {
  if (shape.is_root()) {
    one_shot_all_reduce(plan, shape);
    plan.lanes[0].steps.erase(plan.lanes[0].steps.begin());  // no rank reads the root's scratch
    return;
  }
  const Ranges r(shape.rank);
  const Index whole = fixed(0);
  only_lane(plan, Buffer::input, 1, {copy(whole, r.input(whole), {r.scratch(whole)}), arrive()});
}

void one_shot_broadcast(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index whole = fixed(0), root = fixed(shape.root);
  if (shape.is_root()) {
    only_lane(plan, Buffer::output, 1,
              {copy(whole, r.input(whole), {r.scratch(whole)}), arrive(),
               copy(whole, r.input(whole), {r.output(whole)})});
  } else {
    only_lane(plan, Buffer::output, 1,
              {arrive(), await_arrival(root),
               copy(whole, at(r.scratch(whole), root), {r.output(whole)})});
  }
}

void one_shot_all_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  Steps steps = {copy(own, r.input(fixed(0)), {r.scratch(fixed(0))}), arrive(),
                 copy(own, r.input(fixed(0)), {r.output(own)}), await_arrival()};
  collect(r, shape, fixed(0), steps);
  only_lane(plan, Buffer::output, 1, std::move(steps));
}

void one_shot_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  if (!shape.is_root()) {
    only_lane(plan, Buffer::output, 1,
              {copy(own, r.input(fixed(0)), {r.scratch(fixed(0))}), arrive()});
    return;
  }
  Steps steps = {arrive(), copy(own, r.input(fixed(0)), {r.output(own)}), await_arrival()};
  collect(r, shape, fixed(0), steps);
  only_lane(plan, Buffer::output, 1, std::move(steps));
}

void one_shot_reduce_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  Steps steps = fill_scratch(r, shape);
  steps.push_back(arrive());
  steps.push_back(await_arrival());
  steps.push_back(finish(
      own, in_rank_order(shape.rank, shape.ranks, r.input(own), at(r.scratch(own), by_source(0))),
      {r.output(fixed(0))}));
  only_lane(plan, Buffer::input, shape.ranks, std::move(steps));
}

void one_shot_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank), root = fixed(shape.root);
  if (!shape.is_root()) {
    only_lane(
        plan, Buffer::input, shape.ranks,
        {arrive(), await_arrival(root), copy(own, at(r.scratch(own), root), {r.output(fixed(0))})});
    return;
  }
  Steps steps = fill_scratch(r, shape);
  steps.push_back(arrive());
  steps.push_back(copy(own, r.input(own), {r.output(fixed(0))}));
  only_lane(plan, Buffer::input, shape.ranks, std::move(steps));
}

void one_shot_all_to_all(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  Steps fill = fill_scratch(r, shape);
  fill.push_back(arrive());
  Steps read = {copy(own, r.input(own), {r.output(own)}), await_arrival()};
  collect(r, shape, own, read);
  plan.single_chunk = true;
  plan.scratch_blocks = shape.ranks;
  plan.lanes = {all_blocks("fill", Buffer::input, std::move(fill)),
                all_blocks("collect", Buffer::output, std::move(read))};
}

}  // namespace hocket::internal::algorithms
