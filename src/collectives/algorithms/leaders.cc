// leaders: local rank 0 of each node, its plan leader ("leader" below), exchanges messages with the
// leaders of the other nodes.
//
//   node 0: ranks 0 1              node 1: ranks 2 3
//   rank 0           rank 1        rank 2           rank 3
//                    [b] arrive                     [d] arrive     input -> own scratch
//   a + b                          c + d                           lane gather
//     a+b -> rank 2                  c+d -> rank 0                 lanes send, receive
//   a+b + c+d -> out, scratch      a+b + c+d -> out, scratch       lane fold, in the order of nodes
//                    copies it                      copies it
//
// It takes the time of two synchronisations in the node and of one message, so it is for small
// calls. Each leader sends its node's sum to every other leader; sums of 16- and 8-bit floats are
// sent as fp32. A barrier is the same without data.
//
// Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
// collective operation performance" (IPDPS'00), which has one leader for each node.
#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int result = 0;            // the flag of a leader
constexpr std::uint32_t leader = 0;  // local rank
constexpr std::uint32_t result_block = 0, own_sum = 1, first_received = 2;

}  // namespace

void leaders_all_reduce(Plan& plan, const Shape& shape) {
  const Layout& layout = *shape.layout;
  const std::uint32_t node = layout.node_of(shape.rank), nodes = layout.nodes();
  const auto locals = narrowed<std::uint32_t>(plan.node.size());
  const Ranges r(layout.local_rank(shape.rank));
  const Index whole = fixed(0), tag = fixed(0);
  const auto lane = [&](const char* name, Steps steps) {
    plan.lanes.push_back(one_block(name, Buffer::input, whole, std::move(steps)));
    return narrowed<std::uint32_t>(plan.lanes.size() - 1);
  };
  plan.single_chunk = true;
  plan.scratch_blocks = first_received + nodes - 1;
  plan.wide_scratch = shape.widened;
  if (layout.local_rank(shape.rank) != leader) {
    const Range theirs = at(r.scratch(fixed(result_block)), fixed(leader));
    lane("all", {copy(whole, r.input(whole), {r.scratch(fixed(result_block))}), arrive(),
                 await_arrival(fixed(leader)), wait(fixed(leader), result),
                 copy(whole, theirs, {r.output(whole)})});
    return;
  }
  Range sum = r.scratch(fixed(own_sum), shape.widened);
  Steps gather = {arrive(), await_arrival()};
  if (locals == 1) {
    sum = r.input(whole);
  } else {
    gather.push_back(fold(whole,
                          in_rank_order(leader, locals, r.input(whole),
                                        at(r.scratch(fixed(result_block)), by_source(0))),
                          sum));
  }
  Steps fold_steps;
  std::vector<Range> sums;
  std::uint32_t block = first_received;
  for (std::uint32_t m = 0; m < nodes; ++m) {
    if (m == node) {
      sums.push_back(sum);
      continue;
    }
    const bool wide = shape.widened && layout.ranks_of(m).size() > 1;
    sums.push_back(r.scratch(fixed(block++), wide));
    const Index from = fixed(layout.ranks_of(m)[leader]);
    fold_steps.push_back(await(lane("receive", {recv(from, tag, whole, sums.back())}), fixed(0)));
  }
  const std::uint32_t gather_lane = lane("gather", std::move(gather));
  for (std::uint32_t i = 1; i < nodes; ++i) {
    const Index to = fixed(layout.ranks_of((node + i) % nodes)[leader]);
    const std::uint32_t sent =
        lane("send", {await(gather_lane, fixed(0)), send(to, tag, whole, sum)});
    fold_steps.push_back(await(sent, fixed(0)));  // in place, the result overwrites the input
  }
  std::vector<Range> places = {r.output(whole)};
  if (locals > 1) places.push_back(r.scratch(fixed(result_block)));
  fold_steps.push_back(finish(whole, std::move(sums), std::move(places)));
  lane("fold", std::move(fold_steps));
  if (locals > 1) plan.lanes.back().publishes = result;
}

void leaders_barrier(Plan& plan, const Shape& shape) {
  const Layout& layout = *shape.layout;
  const std::uint32_t node = layout.node_of(shape.rank), nodes = layout.nodes();
  const Index tag = fixed(0);
  if (layout.local_rank(shape.rank) != leader) {
    plan.lanes = {
        once("all", {arrive(), await_arrival(fixed(leader)), wait(fixed(leader), result)})};
    return;
  }
  constexpr std::uint32_t gather_lane = 0;
  plan.lanes = {once("gather", {arrive(), await_arrival()})};
  Steps all = {await(gather_lane, fixed(0))};
  for (std::uint32_t i = 1; i < nodes; ++i) {
    const Index from = fixed(layout.ranks_of((node + nodes - i) % nodes)[leader]);
    const Index to = fixed(layout.ranks_of((node + i) % nodes)[leader]);
    plan.lanes.push_back(once("receive", {recv_empty(from, tag)}));
    all.push_back(await(narrowed<std::uint32_t>(plan.lanes.size() - 1), fixed(0)));
    plan.lanes.push_back(once("send", {await(gather_lane, fixed(0)), send_empty(to, tag)}));
  }
  plan.lanes.push_back(publishing(once("all", std::move(all)), result));
}

}  // namespace hocket::internal::algorithms
