// one-shot over messages: every rank sends its whole input to all other ranks, and folds all inputs
// itself.
//
// It takes the time of one message and sends p-1 times the bytes, so it is for a few ranks and a
// few KiB. Every pair of ranks has a lane for each direction (pairs.h), so all messages are under
// way at the same time. The lane that receives from the last peer also folds.
//
//   rank 0          rank 1          rank 2          rank 3
//   a -> 1 2 3      b -> 0 2 3      c -> 0 1 3      d -> 0 1 2     one lane per message
//   [b][c][d]       [a][c][d]       [a][b][d]       [a][b][c]      received into scratch
//   a+b+c+d         a+b+c+d         a+b+c+d         a+b+c+d        in absolute rank order -> output
//
// In place, the fold overwrites the input, so it awaits the end of all sends of that chunk. A slot
// is used again when its fold has ended. all-gather receives directly into the output; barrier
// sends empty messages.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/pairs.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int exchange_slots = 2;

}  // namespace

void exchange_all_reduce(Plan& plan, const Shape& shape) {
  const Pairs pairs{shape.ranks};
  const int mine = shape.rank, ranks = shape.ranks;
  const int last = mine == ranks - 1 ? ranks - 2 : ranks - 1;
  const int folded = 2 * ranks;  // below: flag `peer`: sent; flag ranks + peer: received
  plan.slots = exchange_slots;
  plan.scratch_blocks = ranks - 1;
  plan.private_flags = 2 * ranks + 1;
  plan.lanes.resize(pairs.lanes());
  std::vector<Range> parts(ranks, input(0));
  Steps fold;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == mine) continue;
    parts[peer] = scratch(block_of_peer(mine, peer));
    plan.lanes[pairs.lane(mine, peer)] = {send(peer, 0, input(0)), signal(peer)};
    fold.push_back(await(peer));
    if (peer == last) continue;
    plan.lanes[pairs.lane(peer, mine)] = {await(folded, 1, exchange_slots),
                                          recv(peer, 0, parts[peer]), signal(ranks + peer)};
    fold.push_back(await(ranks + peer));
  }
  Steps& lane = plan.lanes[pairs.lane(last, mine)];
  lane = {recv(last, 0, parts[last])};
  lane.insert(lane.end(), fold.begin(), fold.end());
  lane.push_back(finish(0, std::move(parts), {output(0)}));
  if (ranks > 2) lane.push_back(signal(folded));
}

void exchange_all_gather(Plan& plan, const Shape& shape) {
  const Pairs pairs{shape.ranks};
  const int mine = shape.rank;
  plan.lanes.resize(pairs.lanes() + 1);
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer == mine) continue;
    plan.lanes[pairs.lane(mine, peer)] = {send(peer, mine, input(0))};
    plan.lanes[pairs.lane(peer, mine)] = {recv(peer, peer, output(peer))};
  }
  plan.lanes.back() = {copy(mine, input(0), {output(mine)})};
}

void exchange_barrier(Plan& plan, const Shape& shape) {
  const Pairs pairs{shape.ranks};
  plan.single_chunk = true;
  plan.lanes.resize(pairs.lanes());
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer == shape.rank) continue;
    plan.lanes[pairs.lane(shape.rank, peer)] = {send_empty(peer)};
    plan.lanes[pairs.lane(peer, shape.rank)] = {recv_empty(peer)};
  }
}

}  // namespace hocket::internal::algorithms
