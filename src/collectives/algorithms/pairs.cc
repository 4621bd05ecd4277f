// pairs: the ranks that have data for each other exchange it directly, each block in one message.
//
// all-to-all: instance i of lane `send` sends block r + 1 + i to that rank, instance i of lane
// `receive` receives from rank r - 1 - i. So in each instance every rank sends to one rank and
// receives from one rank, and no rank is the target of all others.
//
//   rank 0          rank 1          rank 2          rank 3
//   a1>1 a2>2 a3>3  b2>2 b3>3 b0>0  c3>3 c0>0 c1>1  d0>0 d1>1 d2>2  lane send, instances 0 1 2
//   d0 c0 b0        a1 d1 c1        b2 a2 d2        c3 b3 a3        lane receive, into the output
//   a0              b1              c2              d3              lane copy
//
// gather: the root has the lanes receive and copy, the others send their block. scatter: the root
// has the lanes send and copy, the others receive their block. reduce: the others send their whole
// input; the root receives it into scratch and folds all inputs in absolute rank order.
//
// The chunks of a lane are those of the block of its message. In a gather, a scatter or an
// all-to-all with varying counts a rank knows only the blocks that it sends or receives.
//
// Windows. The lanes of an all-to-all cannot deadlock: let i be the least instance that has not
// ended on some rank. All earlier instances have ended on all ranks, so instance i is active at
// both ends of each of its messages. In gather and scatter only the root has more than one
// instance. The fold of a reduce needs the data of all peers, so all instances that receive for it
// are active at the same time; a slot is used again when its fold has ended.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH" (IJHPCA 2005): the order of the messages is that of the pairwise exchange; here several
// instances are under way at the same time.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr std::uint32_t pairs_window = 8;
constexpr int pairs_slots = 2;

/// One rank's view of the pairs.
struct Peers {
  explicit Peers(const Shape& shape)
      : number(shape.ranks - 1),
        own(fixed(shape.rank)),
        root(fixed(shape.root)),
        to(by_instance(std::int64_t{shape.rank} + 1, 1, shape.ranks)),
        from(by_instance(std::int64_t{shape.rank} - 1, -1, shape.ranks)) {}
  std::uint32_t number;
  Index own, root, to, from;
};

}  // namespace

void pairs_all_to_all(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Peers p(shape);
  const Index tag = fixed(0);
  plan.lanes = {
      instances(one_block("send", Buffer::input, p.to, {send(p.to, tag, p.to, r.input(p.to))}),
                p.number, pairs_window),
      instances(one_block("receive", Buffer::output, p.from,
                          {recv(p.from, tag, p.from, r.output(p.from))}),
                p.number, pairs_window),
      one_block("copy", Buffer::input, p.own, {copy(p.own, r.input(p.own), {r.output(p.own)})})};
}

void pairs_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Peers p(shape);
  const Index tag = fixed(0), only = fixed(0);
  if (!shape.is_root()) {
    plan.lanes = {one_block("send", Buffer::input, only, {send(p.root, tag, only, r.input(only))})};
    return;
  }
  plan.lanes = {
      instances(one_block("receive", Buffer::output, p.from,
                          {recv(p.from, tag, p.from, r.output(p.from))}),
                p.number, pairs_window),
      one_block("copy", Buffer::output, p.own, {copy(p.own, r.input(only), {r.output(p.own)})})};
}

void pairs_scatter(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Peers p(shape);
  const Index tag = fixed(0), only = fixed(0);
  if (!shape.is_root()) {
    plan.lanes = {
        one_block("receive", Buffer::output, only, {recv(p.root, tag, only, r.output(only))})};
    return;
  }
  plan.lanes = {
      instances(one_block("send", Buffer::input, p.to, {send(p.to, tag, p.to, r.input(p.to))}),
                p.number, pairs_window),
      one_block("copy", Buffer::input, p.own, {copy(p.own, r.input(p.own), {r.output(only)})})};
}

void pairs_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Peers p(shape);
  const Index tag = fixed(0), whole = fixed(0);
  plan.slots = pairs_slots;
  plan.scratch_blocks = p.number;
  if (!shape.is_root()) {
    plan.lanes = {
        one_block("send", Buffer::input, whole, {send(p.root, tag, whole, r.input(whole))})};
    return;
  }
  constexpr std::uint32_t receive_lane = 0, fold_lane = 1;
  // Rank q's data is in the block of the instance that receives it: r - 1 - q.
  const Range theirs = r.scratch(by_source(std::int64_t{shape.rank} - 1, -1, shape.ranks));
  plan.lanes = {
      instances(one_block("receive", Buffer::input, whole,
                          {await(fold_lane, fixed(0), pairs_slots),
                           recv(p.from, tag, whole, r.scratch(by_instance(0, 1)))}),
                p.number, p.number),
      one_block("fold", Buffer::input, whole,
                {await_each(receive_lane, by_source(0), p.number),
                 finish(whole, in_rank_order(shape.rank, shape.ranks, r.input(whole), theirs),
                        {r.output(whole)})})};
}

}  // namespace hocket::internal::algorithms
