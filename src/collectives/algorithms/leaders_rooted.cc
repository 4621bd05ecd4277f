// leaders, collectives with a root: the root and the plan leader (local rank 0; "leader" below) of
// each other node exchange one message. Local peers exchange data through scratch.
//
//   2 nodes, node 0: ranks 0 (root) and 1, node 1: ranks 2 and 3
//
//   gather                                                     [b]: b in the scratch of this rank
//   rank 0              rank 1       rank 2              rank 3
//                       [b] arrive                       [d] arrive   lane all
//                                    packs [c d]                      lane gather
//   receives [c d]                   c d > 0                          lanes receive, send
//   copies a b c d                                                    lanes gather, collect
//
//   scatter
//   [b c d] arrive                                                    lane put
//   c d > 2                          receives [c d]                   lanes send, receive
//                       copies b     copies c            copies d     lanes all, collect
//
// In a gather only the root and the leaders wait for other ranks: in a loop the others run ahead,
// as in `one-shot`. The same holds for a reduce, in which a leader sends the sum of its node. In a
// broadcast the root sends its input to each leader, and in a scatter the blocks of that node.
//
// The root exchanges a message with each other node, so this is for small calls and few nodes. More
// about scratch and messages: leaders.cc.
//
// Source: as leaders.cc.
#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/leaders.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

class RootedLeaders : Leaders {
 public:
  RootedLeaders(Plan& plan, const Shape& shape, Buffer extents)
      : Leaders(plan, shape, extents),
        root_(narrowed<std::uint32_t>(shape.root)),
        root_node_(layout_.node_of(root_)) {}

  void gather();
  void scatter();
  void broadcast();
  void reduce();

 private:
  /// The steps of a rank that leads no node, until it may read the scratch of its leader.
  Steps await_leader() const {
    Steps steps = {arrive(), await_arrival(local_leader())};
    if (node_ != root_node_) steps.push_back(wait(local_leader(), result));
    return steps;
  }

  const std::uint32_t root_, root_node_;
};

void RootedLeaders::gather() {
  const Index own = fixed(shape_.rank), only = fixed(0);
  plan_.scratch_blocks = shape_.ranks;
  const Step put = copy(own, r_.input(only), {place_of(shape_.rank)});
  if (!leads()) {
    add("all", {put, arrive()});
    return;
  }
  const bool is_root = shape_.is_root();
  Steps received, collect;
  if (is_root) {
    for (std::uint32_t i = 1; i < nodes_; ++i) {
      const std::uint32_t from = node_before(i);
      receive_blocks(from, from, first_[from], &received, &collect);
    }
  }
  Steps steps = {arrive(), is_root ? copy(own, r_.input(only), {r_.output(own)}) : put,
                 await_arrival()};
  for (const std::uint32_t q : layout_.ranks_of(node_)) {
    if (q == shape_.rank) continue;
    steps.push_back(copy(fixed(q), at(place_of(q), fixed(layout_.local_rank(q))),
                         {is_root ? r_.output(fixed(q)) : place_of(q)}));
  }
  const std::uint32_t lane = add("gather", std::move(steps));
  if (is_root) {
    add("collect", std::move(collect));
  } else {
    send_blocks(root_node_, node_, first_[node_], lane);
  }
}

void RootedLeaders::scatter() {
  const Index own = fixed(shape_.rank), only = fixed(0);
  plan_.scratch_blocks = shape_.ranks;
  if (shape_.is_root()) {
    Steps put;
    for (std::uint32_t q = 0; q < shape_.ranks; ++q) {
      if (q != root_) put.push_back(copy(fixed(q), r_.input(fixed(q)), {place_of(q)}));
    }
    put.push_back(arrive());
    const std::uint32_t lane = add("put", std::move(put));
    for (std::uint32_t i = 1; i < nodes_; ++i) {
      send_blocks(node_after(i), node_after(i), first_[node_after(i)], lane);
    }
    add("copy", {copy(own, r_.input(own), {r_.output(only)})});
    return;
  }
  if (!leads()) {
    Steps steps = await_leader();
    steps.push_back(copy(own, of_leader(place_of(shape_.rank)), {r_.output(only)}));
    add("all", std::move(steps));
    return;
  }
  Steps received;
  receive_blocks(root_node_, node_, first_[node_], &received, nullptr);
  add("arrive", {arrive()});
  Steps collect = received;
  collect.push_back(copy(own, place_of(shape_.rank), {r_.output(only)}));
  add_result(std::move(received));
  add("collect", std::move(collect));
}

void RootedLeaders::broadcast() {
  const Index whole = fixed(0), tag = fixed(0);
  const Range shared = r_.scratch(whole);
  plan_.scratch_blocks = 1;
  if (shape_.is_root()) {
    Steps put;
    if (locals_ > 1) put.push_back(copy(whole, r_.input(whole), {shared}));
    put.push_back(arrive());
    add("put", std::move(put));
    for (std::uint32_t i = 1; i < nodes_; ++i) {
      add("send", {send(fixed(leader_of(node_after(i))), tag, whole, r_.input(whole))});
    }
    add("copy", {copy(whole, r_.input(whole), {r_.output(whole)})});
    return;
  }
  if (!leads()) {
    Steps steps = await_leader();
    steps.push_back(copy(whole, of_leader(shared), {r_.output(whole)}));
    add("all", std::move(steps));
    return;
  }
  const bool alone = locals_ == 1;
  const std::uint32_t received =
      add("receive", {recv(fixed(root_), tag, whole, alone ? r_.output(whole) : shared)});
  add("arrive", {arrive()});
  if (alone) return;
  add_result({await(received, fixed(0))});
  add("collect", {await(received, fixed(0)), copy(whole, shared, {r_.output(whole)})});
}

void RootedLeaders::reduce() {
  const Index whole = fixed(0), tag = fixed(0);
  const std::uint32_t own_input = 0, own_sum = 1, first_received = 2;
  const bool wide = shape_.widened;
  const Range mine = r_.scratch(fixed(own_input));
  plan_.scratch_blocks = first_received + nodes_ - 1;
  plan_.wide_scratch = wide;
  if (!leads()) {
    add("all", {copy(whole, r_.input(whole), {mine}), arrive()});
    return;
  }
  const std::vector<Range> of_node =
      in_rank_order(local_, locals_, r_.input(whole), at(mine, by_source(0)));
  if (!shape_.is_root()) {
    const Range sum = r_.scratch(fixed(own_sum), wide);
    const std::uint32_t lane =
        add("gather", {arrive(), await_arrival(), fold(whole, of_node, sum)});
    add("send", {await(lane, fixed(0)), send(fixed(root_), tag, whole, sum)});
    return;
  }
  std::vector<Range> sums;
  Steps fold_steps = {arrive(), await_arrival()};
  for (std::uint32_t m = 0, block = first_received; m < nodes_; ++m) {
    if (m == node_) {
      sums.insert(sums.end(), of_node.begin(), of_node.end());
      continue;
    }
    sums.push_back(r_.scratch(fixed(block++), wide));
    const Step receive = recv(fixed(leader_of(m)), tag, whole, sums.back());
    fold_steps.push_back(await(add("receive", {receive}), fixed(0)));
  }
  fold_steps.push_back(finish(whole, std::move(sums), {r_.output(whole)}));
  add("fold", std::move(fold_steps));
}

}  // namespace

void leaders_gather(Plan& plan, const Shape& shape) {
  RootedLeaders(plan, shape, Buffer::output).gather();
}
void leaders_scatter(Plan& plan, const Shape& shape) {
  RootedLeaders(plan, shape, Buffer::input).scatter();
}
void leaders_broadcast(Plan& plan, const Shape& shape) {
  RootedLeaders(plan, shape, Buffer::output).broadcast();
}
void leaders_reduce(Plan& plan, const Shape& shape) {
  RootedLeaders(plan, shape, Buffer::input).reduce();
}

}  // namespace hocket::internal::algorithms
