// owner-fold: each block is sent to its owner, which folds it and sends the result to all ranks.
//
// Rank j owns block j. A rank sends as many bytes as in a ring, 2(p-1)/p of the message, but no
// partial result is sent: fp16 is sent as fp16, and the owner folds it in fp32, in absolute rank
// order, and rounds it once. So the bits depend only on the number of ranks, and not on the size,
// the transport or the placement. Deterministic mode uses this plan, and operators that do not
// commute need it.
//
//   rank 0          rank 1          rank 2          rank 3
//   a1>1 a2>2 a3>3  b2>2 b3>3 b0>0  c3>3 c0>0 c1>1  d0>0 d1>1 d2>2  lane send, instances 0 1 2
//   [d0][c0][b0]    [a1][d1][c1]    [b2][a2][d2]    [c3][b3][a3]    lane receive, into scratch
//   a0+b0+c0+d0     a1+b1+c1+d1     a2+b2+c2+d2     a3+b3+c3+d3     lane fold -> output block
//   r0>1 2 3        r1>2 3 0        r2>3 0 1        r3>0 1 2        lane send result
//   r3 r2 r1        r0 r3 r2        r1 r0 r3        r2 r1 r0        lane receive result
//
// Instance i of both send lanes sends to rank r + 1 + i, instance i of both receive lanes receives
// from rank r - 1 - i. reduce-scatter ends with the fold.
//
// Windows. A fold needs the data of all peers, so all instances of `send` and `receive` are active
// at the same time. The lanes of the results have a constant window. They cannot deadlock: folds do
// not wait for them, so every rank gets its result to send. Let i be the least instance that has
// not ended on some rank. All earlier instances have ended on all ranks, so instance i is active at
// both ends of each of its messages.
//
// A slot is used again when its fold has ended. In place, a result overwrites an input block whose
// send may not have ended. So the instance that receives the result of block r - 1 - i awaits the
// instance p - 2 - i of `send`, which sends that input block.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH" (IJHPCA 2005): the reduce-scatter by pairwise exchange. A direct all-gather follows it.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int owner_fold_slots = 2;
constexpr std::uint32_t result_window = 8;

}  // namespace

void owner_fold(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const std::uint32_t peers = shape.ranks - 1;
  const bool gathers = shape.collective == Collective::all_reduce;
  constexpr std::uint32_t send_lane = 0, receive_lane = 1, fold_lane = 2;
  const Index own = fixed(shape.rank), input_tag = fixed(0), result_tag = fixed(1);
  const Index to = by_instance(std::int64_t{shape.rank} + 1, 1, shape.ranks);
  const Index from = by_instance(std::int64_t{shape.rank} - 1, -1, shape.ranks);
  plan.slots = owner_fold_slots;
  plan.scratch_blocks = peers;
  // Rank q's data is in the block of the instance that receives it: r - 1 - q.
  const Range theirs = r.scratch(by_source(std::int64_t{shape.rank} - 1, -1, shape.ranks));
  plan.lanes = {
      instances(one_block("send", Buffer::input, to, {send(to, input_tag, to, r.input(to))}), peers,
                peers),
      instances(one_block("receive", Buffer::input, own,
                          {await(fold_lane, fixed(0), owner_fold_slots),
                           recv(from, input_tag, own, r.scratch(by_instance(0, 1)))}),
                peers, peers),
      one_block("fold", Buffer::input, own,
                {await_each(receive_lane, by_source(0), peers),
                 finish(own, in_rank_order(shape.rank, shape.ranks, r.input(own), theirs),
                        {r.output(gathers ? own : fixed(0))})})};
  if (!gathers) return;
  plan.lanes.push_back(
      instances(one_block("send result", Buffer::output, own,
                          {await(fold_lane, fixed(0)), send(to, result_tag, own, r.output(own))}),
                peers, result_window));
  plan.lanes.push_back(
      instances(one_block("receive result", Buffer::output, from,
                          {await(send_lane, by_instance(std::int64_t{peers} - 1, -1)),
                           recv(from, result_tag, from, r.output(from))}),
                peers, result_window));
}

}  // namespace hocket::internal::algorithms
