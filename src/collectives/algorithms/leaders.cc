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
// All-gather. Each leader packs the blocks of its node in its scratch, and sends them to every
// other leader in one message. The other ranks copy all blocks from the scratch of their leader.
//
//   rank 0           rank 1        rank 2           rank 3
//   [a] arrive       [b] arrive    [c] arrive       [d] arrive     input -> own scratch
//   packs a b                      packs c d                       lane gather
//     a b -> rank 2                  c d -> rank 0                 lanes send, receive
//   a b c d -> out                 a b c d -> out                  lanes gather, collect
//                    copies them                    copies them
//
// Reduce-scatter. Each leader sums what its node contributes to the blocks of another node, and
// sends these sums to the leader there in one message. Each rank folds the contributions of its
// node to its own block, and the sums that its leader has received for that block.
//
//   rank 0           rank 1          rank 2           rank 3
//   [a] arrive       [b] arrive      [c] arrive       [d] arrive    input -> own scratch
//   a+b for 2, 3                     c+d for 0, 1                   lane gather
//     sums -> rank 2                   sums -> rank 0               lanes send, receive
//   folds block 0    folds block 1   folds block 2    folds block 3
//
// A rank writes to its scratch, and receives into it, only when all local peers have ended the
// operation that used it before (src/transport/shm/run_ahead.h). If the ranks of a node are not at
// equal distances (0, 1, 3), its blocks need several messages.
//
// Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
// collective operation performance" (IPDPS'00), which has one leader for each node.
//
// Collectives with a root: leaders_rooted.cc.
#include "collectives/algorithms/leaders.h"

#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int result = Leaders::result;
constexpr std::uint32_t leader = 0;  // local rank
constexpr std::uint32_t result_block = 0, own_sum = 1, first_received = 2;

class NodeBlocks : Leaders {
 public:
  NodeBlocks(Plan& plan, const Shape& shape, Buffer extents) : Leaders(plan, shape, extents) {}
  void all_gather();
  void reduce_scatter();
};

void NodeBlocks::all_gather() {
  const Index own = fixed(shape_.rank), only = fixed(0);
  plan_.scratch_blocks = shape_.ranks;
  Steps gather = {copy(own, r_.input(only), {place_of(shape_.rank)}), arrive(),
                  copy(own, r_.input(only), {r_.output(own)})};
  if (!leads()) {
    gather.push_back(await_arrival(local_leader()));
    gather.push_back(wait(local_leader(), result));
    for (std::uint32_t i = 1; i < shape_.ranks; ++i) {
      const std::uint32_t q = (shape_.rank + i) % shape_.ranks;
      gather.push_back(copy(fixed(q), of_leader(place_of(q)), {r_.output(fixed(q))}));
    }
    add("all", std::move(gather));
    return;
  }
  Steps received, collect;
  for (std::uint32_t i = 1; i < nodes_; ++i) {
    const std::uint32_t from = node_before(i);
    receive_blocks(from, from, first_[from], &received, &collect);
  }
  gather.push_back(await_arrival());
  for (const std::uint32_t q : layout_.ranks_of(node_)) {
    if (q == shape_.rank) continue;
    const Range packed = place_of(q);
    gather.push_back(
        copy(fixed(q), at(packed, fixed(layout_.local_rank(q))), {packed, r_.output(fixed(q))}));
  }
  const std::uint32_t gather_lane = add("gather", std::move(gather));
  for (std::uint32_t i = 1; i < nodes_; ++i) {
    send_blocks(node_after(i), node_, first_[node_], gather_lane);
  }
  received.push_back(await(gather_lane, fixed(0)));
  add_result(std::move(received));
  add("collect", std::move(collect));
}

void NodeBlocks::reduce_scatter() {
  const bool wide = shape_.widened;
  const std::uint32_t largest = layout_.ranks_of_largest();
  // Scratch: block q of the input, then the sums for other nodes, then those that were received.
  const std::uint32_t first_sum = shape_.ranks, received_sums = 2 * shape_.ranks;
  plan_.scratch_blocks = received_sums + (nodes_ - 1) * largest;
  plan_.wide_scratch = wide;
  const auto of_node = [&](std::uint32_t q) {
    return in_rank_order(local_, locals_, r_.input(fixed(q)),
                         at(r_.scratch(fixed(q)), by_source(0)));
  };
  const auto received_from = [&](std::uint32_t node) {
    return received_sums + ((node + nodes_ - node_) % nodes_ - 1) * largest;
  };
  Steps gather;
  for (std::uint32_t q = 0; q < shape_.ranks; ++q) {
    const bool is_read = !leads() || layout_.node_of(q) == node_;
    if (q == shape_.rank || !is_read) continue;
    gather.push_back(copy(fixed(q), r_.input(fixed(q)), {r_.scratch(fixed(q))}));
  }
  gather.push_back(arrive());
  gather.push_back(await_arrival());
  std::vector<Range> sums;
  for (std::uint32_t m = 0; m < nodes_; ++m) {
    if (m == node_) {
      const std::vector<Range> parts = of_node(shape_.rank);
      sums.insert(sums.end(), parts.begin(), parts.end());
    } else {
      sums.push_back(of_leader(r_.scratch(fixed(received_from(m) + local_), wide)));
    }
  }
  const Step last = finish(fixed(shape_.rank), std::move(sums), {r_.output(fixed(0))});
  if (!leads()) {
    gather.push_back(wait(local_leader(), result));
    gather.push_back(last);
    add("all", std::move(gather));
    return;
  }
  Steps received;
  for (std::uint32_t i = 1; i < nodes_; ++i) {
    const std::uint32_t from = node_before(i);
    receive_blocks(from, node_, received_from(from), &received, nullptr);
  }
  for (std::uint32_t i = 1; i < nodes_; ++i) {
    for (const std::uint32_t q : layout_.ranks_of(node_after(i))) {
      gather.push_back(fold(fixed(q), of_node(q), r_.scratch(fixed(first_sum + place(q)), wide)));
    }
  }
  const std::uint32_t gather_lane = add("gather", std::move(gather));
  for (std::uint32_t i = 1; i < nodes_; ++i) {
    const std::uint32_t to = node_after(i);
    send_blocks(to, to, first_sum + first_[to], gather_lane);
  }
  Steps all = received;
  all.push_back(await(gather_lane, fixed(0)));
  all.push_back(last);
  add_result(std::move(received));
  add("fold", std::move(all));
}

}  // namespace

void Leaders::send_blocks(std::uint32_t to, std::uint32_t of, std::uint32_t first,
                          std::uint32_t ready) {
  for (const Run& run : runs_of(layout_.ranks_of(of))) {
    const Range from = r_.scratch(run.places(first), plan_.wide_scratch);
    const Step step = send(fixed(leader_of(to)), fixed(run.first), run.blocks(), from);
    add("send", {await(ready, fixed(0)), for_blocks(step, run.length)});
    first += run.length;
  }
}

void Leaders::receive_blocks(std::uint32_t from, std::uint32_t of, std::uint32_t first,
                             Steps* received, Steps* collect) {
  for (const Run& run : runs_of(layout_.ranks_of(of))) {
    const Range to = r_.scratch(run.places(first), plan_.wide_scratch);
    const Step step = recv(fixed(leader_of(from)), fixed(run.first), run.blocks(), to);
    received->push_back(await(add("receive", {for_blocks(step, run.length)}), fixed(0)));
    first += run.length;
    if (collect == nullptr) continue;
    collect->push_back(received->back());
    collect->push_back(for_blocks(copy(run.blocks(), to, {r_.output(run.blocks())}), run.length));
  }
}

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

void leaders_all_gather(Plan& plan, const Shape& shape) {
  NodeBlocks(plan, shape, Buffer::output).all_gather();
}

void leaders_reduce_scatter(Plan& plan, const Shape& shape) {
  NodeBlocks(plan, shape, Buffer::input).reduce_scatter();
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
