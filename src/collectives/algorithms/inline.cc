// inline: the data is in the arrival line; for a few bytes.
//
// Every rank publishes its arrival in a line of its own, and every peer reads that line to compare
// signatures. Up to line_payload_bytes of data in the same line cost almost nothing more, so for
// the whole collective a rank reads one line of each peer. A fold reads the lines of all ranks in
// absolute rank order, so all ranks get the same bits.
//
//   rank 0        rank 1        rank 2        rank 3
//   [flag|a]      [flag|b]      [flag|c]      [flag|d]     input -> own line, arrive
//      \_____________|____________|_____________/
//      await all, read 4 lines: a+b+c+d -> output           (each rank for itself)
//
// No line is rewritten while a peer reads it: a rank has 128 lines, which its operations use in
// turn, and is at most 127 operations ahead of any peer (src/transport/shm/run_ahead.h). Where a
// rank has a block for each peer (reduce-scatter, scatter, all-to-all), the blocks lie one behind
// another in the line, so all of them together must fit. In a rooted collective a rank puts data
// into its line only if another rank reads it, and a rank waits only for peers whose data it reads:
// in a reduce, every rank but the root returns as soon as it has arrived.
//
// Source: coll/xhc of Open MPI, which has data (`imm_data`) in the line of its flag. Katevenis,
// Ploumidis and Marazakis, "A framework for hierarchical single-copy MPI collectives on multicore
// nodes" (CLUSTER'22) describe XHC.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

void only_lane(Plan& plan, Buffer extents, Steps steps, std::uint32_t line_blocks = 1) {
  plan.single_chunk = true;
  plan.line_blocks = line_blocks;
  plan.lanes = {all_blocks("all", extents, std::move(steps))};
}

/// Copies of all blocks of the input but `except` to the blocks of the line.
Steps fill_line(const Ranges& r, std::uint32_t ranks, std::uint32_t except) {
  Steps steps;
  for (std::uint32_t b = 0; b < ranks; ++b) {
    if (b != except) steps.push_back(copy(fixed(b), r.input(fixed(b)), {r.line(fixed(b))}));
  }
  return steps;
}

/// The lines of all ranks: of this rank too.
std::vector<Range> all_lines(const Ranges& r, std::uint32_t ranks) {
  return {times(at(r.line(fixed(0)), by_source(0)), ranks)};
}

}  // namespace

void inline_all_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index whole = fixed(0);
  only_lane(plan, Buffer::input,
            {copy(whole, r.input(whole), {r.line(whole)}), arrive(), await_arrival(),
             finish(whole, all_lines(r, shape.ranks), {r.output(whole)})});
}

void inline_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index whole = fixed(0);
  if (!shape.is_root()) {
    only_lane(plan, Buffer::input, {copy(whole, r.input(whole), {r.line(whole)}), arrive()});
    return;
  }
  only_lane(plan, Buffer::input,
            {arrive(), await_arrival(),
             finish(whole,
                    in_rank_order(shape.rank, shape.ranks, r.input(whole),
                                  at(r.line(whole), by_source(0))),
                    {r.output(whole)})});
}

void inline_broadcast(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index whole = fixed(0), root = fixed(shape.root);
  if (shape.is_root()) {
    only_lane(plan, Buffer::output,
              {copy(whole, r.input(whole), {r.line(whole)}), arrive(),
               copy(whole, r.input(whole), {r.output(whole)})});
  } else {
    only_lane(
        plan, Buffer::output,
        {arrive(), await_arrival(root), copy(whole, at(r.line(whole), root), {r.output(whole)})});
  }
}

void inline_all_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  Steps steps = {copy(own, r.input(fixed(0)), {r.line(fixed(0))}), arrive(),
                 copy(own, r.input(fixed(0)), {r.output(own)}), await_arrival()};
  for (std::uint32_t q = 0; q < shape.ranks; ++q) {
    if (q == shape.rank) continue;
    steps.push_back(copy(fixed(q), at(r.line(fixed(0)), fixed(q)), {r.output(fixed(q))}));
  }
  only_lane(plan, Buffer::output, std::move(steps));
}

void inline_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  if (!shape.is_root()) {
    only_lane(plan, Buffer::output, {copy(own, r.input(fixed(0)), {r.line(fixed(0))}), arrive()});
    return;
  }
  Steps steps = {arrive(), copy(own, r.input(fixed(0)), {r.output(own)}), await_arrival()};
  for (std::uint32_t q = 0; q < shape.ranks; ++q) {
    if (q == shape.rank) continue;
    steps.push_back(copy(fixed(q), at(r.line(fixed(0)), fixed(q)), {r.output(fixed(q))}));
  }
  only_lane(plan, Buffer::output, std::move(steps));
}

void inline_reduce_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  Steps steps = fill_line(r, shape.ranks, shape.rank);
  steps.push_back(arrive());
  steps.push_back(await_arrival());
  steps.push_back(finish(
      own, in_rank_order(shape.rank, shape.ranks, r.input(own), at(r.line(own), by_source(0))),
      {r.output(fixed(0))}));
  only_lane(plan, Buffer::input, std::move(steps), shape.ranks);
}

void inline_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank), root = fixed(shape.root);
  if (!shape.is_root()) {
    only_lane(
        plan, Buffer::input,
        {arrive(), await_arrival(root), copy(own, at(r.line(own), root), {r.output(fixed(0))})},
        shape.ranks);
    return;
  }
  Steps steps = fill_line(r, shape.ranks, shape.rank);
  steps.push_back(arrive());
  steps.push_back(copy(own, r.input(own), {r.output(fixed(0))}));
  only_lane(plan, Buffer::input, std::move(steps), shape.ranks);
}

void inline_all_to_all(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  Steps fill = fill_line(r, shape.ranks, shape.rank);
  fill.push_back(arrive());
  Steps collect = {copy(own, r.input(own), {r.output(own)}), await_arrival()};
  for (std::uint32_t q = 0; q < shape.ranks; ++q) {
    if (q == shape.rank) continue;
    collect.push_back(copy(fixed(q), at(r.line(own), fixed(q)), {r.output(fixed(q))}));
  }
  plan.single_chunk = true;
  plan.line_blocks = shape.ranks;
  plan.lanes = {all_blocks("fill", Buffer::input, std::move(fill)),
                all_blocks("collect", Buffer::output, std::move(collect))};
}

void inline_barrier(Plan& plan, const Shape&) {
  plan.single_chunk = true;
  plan.lanes = {once("all", {arrive(), await_arrival()})};
}

}  // namespace hocket::internal::algorithms
