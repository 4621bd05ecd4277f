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
// Only rank r accesses block r of any buffer, so the plan is right in place too. The arrival of a
// rank says that its peers may access its buffers. When a rank has made its last access to buffers
// of peers, it sets its flag `done` (lane `done`). It returns when all peers that access its
// buffers have set theirs (lane `exit`).
//
// A reduce folds as the all-reduce does, and writes only to the output of the root. In a gather
// each rank copies its input to the output of the root. The others write to no memory of a peer:
// all-gather and all-to-all copy from the inputs of the peers, reduce-scatter folds these, scatter
// copies from the input of the root. If peers access only the buffers of the root, only the root
// waits for `done`.
//
// In a broadcast all ranks copy the same amount, the root too: of p blocks each of the others
// copies p - 1 from the input of the root, and the root copies the last block to the outputs of all
// others. Between 2 ranks that took 0.36 to 0.67 of the time in which the other rank copied
// everything (64 KiB to 32 MiB, 2026-11-25). With more than `most_parts` ranks the root's part
// would be small, and it only waits.
//
//   root 0        rank 1        rank 2        rank 3
//   [a b c d] --> [a b c .]     [a b c .]     [a b c .]    each copies three blocks of the root's
//          \------------ d ------------ d ------------ d   input; the root writes the fourth
//
// All ranks arrive first, as in `staged`: an executor that finds a buffer unmapped runs `staged`
// instead.
//
// Source: Hashmi et al., "Designing efficient shared address space reduction collectives for
// multi-/many-cores" (IPDPS'18), where XPMEM maps the buffers.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { done = 3 };  // no flag of `staged`

// Into which a broadcast is cut, so that the root helps to copy. Not where ranks share cores: there
// every core has a rank that copies, and a rank that need not await all others ends sooner.
constexpr std::uint32_t most_parts = 8;

enum class Accessed : std::uint8_t { inputs, outputs, both };

/// tells: this rank accesses buffers of peers. waits: peers access buffers of this rank.
void set_lane(Plan& plan, Accessed accessed, Lane lane, bool tells, bool waits) {
  plan.arrives_first = true;
  plan.maps_input = accessed != Accessed::outputs;
  plan.maps_output = accessed != Accessed::inputs;
  plan.lanes = {std::move(lane)};
  if (tells) plan.lanes.push_back(publishing(once("done", {await_end(0, fixed(0))}), done));
  if (waits) plan.lanes.push_back(once("exit", {wait_all(done)}));
}

/// The inputs of all ranks: of this rank too.
std::vector<Range> all_inputs(const Ranges& r, const Shape& shape) {
  return {times(at(r.input(fixed(shape.rank)), by_source(0)), shape.ranks)};
}

}  // namespace

void direct_all_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  // This rank's output is first, because it is near; then the peers' outputs, beginning with
  // another peer on each rank.
  const Range outputs =
      times(at(r.output(own), by_source(shape.rank, 1, shape.ranks)), shape.ranks);
  set_lane(plan, Accessed::both,
           all_blocks("fold", Buffer::input, {finish(own, all_inputs(r, shape), {outputs})}), true,
           true);
}

void direct_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  set_lane(plan, Accessed::both,
           all_blocks("fold", Buffer::input,
                      {finish(own, all_inputs(r, shape), {at(r.output(own), fixed(shape.root))})}),
           true, true);
}

void direct_reduce_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  set_lane(plan, Accessed::inputs,
           all_blocks("fold", Buffer::input,
                      {finish(fixed(shape.rank), all_inputs(r, shape), {r.output(fixed(0))})}),
           true, true);
}

void direct_broadcast(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index root = fixed(shape.root);
  if (shape.ranks > most_parts || shape.shares_cores) {
    const Index whole = fixed(0);
    set_lane(plan, Accessed::inputs,
             all_blocks("copy", Buffer::output,
                        {copy(whole, at(r.input(whole), root), {r.output(whole)})}),
             !shape.is_root(), shape.is_root());
    return;
  }
  plan.cut = shape.ranks;
  const Index last = fixed(shape.ranks - 1);
  Steps steps;
  if (shape.is_root()) {
    const Range others = at(r.output(last), by_source(shape.root + 1, 1, shape.ranks));
    steps.push_back(copy(last, r.input(last), {times(others, shape.ranks - 1)}));
  }
  // The root copies to its own output, if that is another buffer.
  const std::uint32_t blocks = shape.is_root() ? shape.ranks : shape.ranks - 1;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    steps.push_back(copy(fixed(b), at(r.input(fixed(b)), root), {r.output(fixed(b))}));
  }
  set_lane(plan, Accessed::both, all_blocks("copy", Buffer::output, std::move(steps)), true,
           shape.is_root());
  if (!shape.is_root()) plan.lanes.push_back(once("exit", {wait(root, done)}));
}

void direct_all_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  Steps steps;
  for (std::uint32_t i = 0; i < shape.ranks; ++i) {
    const Index q = fixed((shape.rank + i) % shape.ranks);
    steps.push_back(copy(q, at(r.input(fixed(0)), q), {r.output(q)}));
  }
  set_lane(plan, Accessed::inputs, all_blocks("copy", Buffer::output, std::move(steps)), true,
           true);
}

void direct_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  const Range target = at(r.output(own), fixed(shape.root));
  set_lane(plan, Accessed::outputs,
           all_blocks("copy", Buffer::output, {copy(own, r.input(fixed(0)), {target})}),
           !shape.is_root(), shape.is_root());
}

void direct_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank);
  const Range source = at(r.input(own), fixed(shape.root));
  set_lane(plan, Accessed::inputs,
           all_blocks("copy", Buffer::input, {copy(own, source, {r.output(fixed(0))})}),
           !shape.is_root(), shape.is_root());
}

void direct_all_to_all(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  Steps steps;
  for (std::uint32_t i = 0; i < shape.ranks; ++i) {
    const Index q = fixed((shape.rank + i) % shape.ranks);
    steps.push_back(copy(q, at(r.input(fixed(shape.rank)), q), {r.output(q)}));
  }
  set_lane(plan, Accessed::inputs, all_blocks("copy", Buffer::output, std::move(steps)), true,
           true);
}

}  // namespace hocket::internal::algorithms
