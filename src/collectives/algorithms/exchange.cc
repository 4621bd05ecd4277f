// one-shot over messages: every rank sends its whole input to all other ranks, and folds all inputs
// itself.
//
// It takes the time of one message, but each rank sends its input p-1 times. So it is for a few
// ranks and a few KiB. Instance i of lane `send` sends to rank r + 1 + i, instance i of lane
// `receive` receives from rank r - 1 - i; all of them are under way at the same time.
//
//   rank 0          rank 1          rank 2          rank 3
//   a -> 1 2 3      b -> 2 3 0      c -> 3 0 1      d -> 0 1 2     lane send, instances 0 1 2
//   [d][c][b]       [a][d][c]       [b][a][d]       [c][b][a]      lane receive, into scratch
//   a+b+c+d         a+b+c+d         a+b+c+d         a+b+c+d        lane fold, in rank order
//
// `receive` is the first lane, so that receives are posted before sends: with 128 KiB between two
// hosts this took 198 us, and 487 us with the sends first.
//
// In place, the fold overwrites the input, so it awaits all sends of that chunk. A slot is used
// again when its fold has ended. An all-gather receives directly into the output; a barrier sends
// empty messages.
//
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems" (IEEE TPDS 1997): one round, if a rank has
// p - 1 ports. In the literature this is the direct algorithm, or complete exchange.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int exchange_slots = 2;

struct Neighbours {
  explicit Neighbours(const Shape& shape)
      : to(by_instance(shape.rank + 1, 1, shape.ranks)),
        from(by_instance(std::int64_t{shape.rank} - 1, -1, shape.ranks)) {}
  Index to, from;
};

}  // namespace

void exchange_all_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Neighbours neighbours(shape);
  const std::uint32_t peers = shape.ranks - 1;
  constexpr std::uint32_t receive_lane = 0, send_lane = 1, fold_lane = 2;
  const Index whole = fixed(0), tag = fixed(0), i = by_instance(0, 1);
  plan.slots = exchange_slots;
  plan.scratch_blocks = peers;
  // Rank q's data is in the block of the instance that receives it: r - 1 - q.
  const Range theirs = r.scratch(by_source(std::int64_t{shape.rank} - 1, -1, shape.ranks));
  plan.lanes = {
      instances(one_block("receive", Buffer::input, whole,
                          {await(fold_lane, fixed(0), exchange_slots),
                           recv(neighbours.from, tag, whole, r.scratch(i))}),
                peers, peers),
      instances(one_block("send", Buffer::input, whole,
                          {send(neighbours.to, tag, whole, r.input(whole))}),
                peers, peers),
      one_block("fold", Buffer::input, whole,
                {await_each(send_lane, by_source(0), peers),
                 await_each(receive_lane, by_source(0), peers),
                 finish(whole, in_rank_order(shape.rank, shape.ranks, r.input(whole), theirs),
                        {r.output(whole)})})};
}

void exchange_all_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Neighbours neighbours(shape);
  const std::uint32_t peers = shape.ranks - 1;
  const Index own = fixed(shape.rank), tag = fixed(0);
  plan.lanes = {
      instances(one_block("receive", Buffer::output, neighbours.from,
                          {recv(neighbours.from, tag, neighbours.from, r.output(neighbours.from))}),
                peers, peers),
      instances(one_block("send", Buffer::output, own,
                          {send(neighbours.to, tag, own, r.input(fixed(0)))}),
                peers, peers),
      one_block("copy", Buffer::output, own, {copy(own, r.input(fixed(0)), {r.output(own)})})};
}

void exchange_barrier(Plan& plan, const Shape& shape) {
  const Neighbours neighbours(shape);
  const std::uint32_t peers = shape.ranks - 1;
  plan.lanes = {instances(once("send", {send_empty(neighbours.to, fixed(0))}), peers, peers),
                instances(once("receive", {recv_empty(neighbours.from, fixed(0))}), peers, peers)};
}

}  // namespace hocket::internal::algorithms
