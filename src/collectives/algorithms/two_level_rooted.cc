// two-level broadcast and reduce: messages along two binary trees of nodes, load and store within
// each node. All of this happens at the same time, on different chunks.
//
// As in two_level.cc, the message is cut in S message shards ("shards"), where S is the number of
// ranks of the largest node; local rank j mod n_i owns shard j on a node of n_i ranks, so all ranks
// of a node send and receive. With more than two nodes a shard has two halves, blocks 2 j and 2 j +
// 1, and each half has a tree of its own. Below the root's node a tree has the other nodes, which
// are numbered v = 0, 1, ...: in ascending order in the first tree, in descending order in the
// second one. Number 0 is the child of the root's node, and number v > 0 has the parent (v - 1) /
// 2, rounded down. So a node that has children in one tree has none in the other.
//
//   5 nodes, root's node 0    first tree:     0         second tree:     0
//                                             |                          |
//                                             1                          4
//                                            / \                        / \   .
//                                           2   3                      3   2
//                                           |                          |
//                                           4                          1
//
//   broadcast of 2 nodes, node 0: ranks 0 (root) and 1, node 1: ranks 2 and 3; shards a b
//
//   rank 0             rank 1             rank 2             rank 3
//   stages a b                                                            lane stage
//   a -> rank 2        b -> rank 3, from  receives a         receives b   lanes send, receive
//                      rank 0's scratch   into scratch       into scratch
//                      copies a b         copies a b         copies a b   lane collect: each from
//                                                                         its owner's scratch
//
// In a broadcast a node sends one half of each shard at most twice, in one tree, and nothing in the
// other tree: about one message length, however many nodes there are. With two nodes a shard is not
// halved.
//
// A reduce goes the other way. The owner of a shard folds the inputs of its node and the sums that
// the owners on the child nodes send, and sends the result to the owner on the parent node. On the
// root's node the root copies what the owners have folded. Sums of 16- and 8-bit floats are sent as
// fp32.
//
// Source: of the two trees Sanders, Speck and Träff (Parallel Computing 2009); of a tree over nodes
// with all ranks of a node at work HAN (Luo et al., CLUSTER'20).
#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/levels.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { ready = 0, consumed = 1, folded = 2 };

class Rooted : Levels {
 public:
  Rooted(Plan& plan, const Shape& shape)
      : Levels(plan, shape),
        root_node_(layout_.node_of(narrowed<std::uint32_t>(shape.root))),
        root_(layout_.local_rank(narrowed<std::uint32_t>(shape.root))),
        halves_(nodes_ > 2 ? 2 : 1),
        blocks_(layout_.ranks_of_largest() * halves_) {
    plan.cut = blocks_;
  }

  void broadcast();
  void reduce();

 private:
  bool at_root_node() const { return node_ == root_node_; }
  /// Number of a node in the tree of block b, without the root's node, and the node with such a
  /// number.
  std::uint32_t number_of(std::uint32_t node, std::uint32_t b) const {
    const std::uint32_t place = (node + nodes_ - root_node_) % nodes_ - 1;
    return b % halves_ == 0 ? place : nodes_ - 2 - place;
  }
  std::uint32_t node_with(std::uint32_t number, std::uint32_t b) const {
    const std::uint32_t place = b % halves_ == 0 ? number : nodes_ - 2 - number;
    return (place + 1 + root_node_) % nodes_;
  }
  std::uint32_t parent(std::uint32_t b) const {
    const std::uint32_t number = number_of(node_, b);
    return number == 0 ? root_node_ : node_with((number - 1) / 2, b);
  }
  std::vector<std::uint32_t> children(std::uint32_t b) const {
    if (at_root_node()) return {node_with(0, b)};
    std::vector<std::uint32_t> found;
    const std::uint32_t first = 2 * number_of(node_, b) + 1;
    for (std::uint32_t number = first; number < first + 2 && number < nodes_ - 1; ++number) {
      found.push_back(node_with(number, b));
    }
    return found;
  }
  bool is_leaf(std::uint32_t node, std::uint32_t b) const {
    return node != root_node_ && 2 * number_of(node, b) + 1 >= nodes_ - 1;
  }
  std::uint32_t local_owner(std::uint32_t b) const { return b / halves_ % locals_; }
  std::vector<std::uint32_t> blocks_of(std::uint32_t local) const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t b = 0; b < blocks_; ++b) {
      if (local_owner(b) == local) found.push_back(b);
    }
    return found;
  }
  Index owner_on(std::uint32_t node, std::uint32_t b) const {
    return fixed(rank_on(node, b / halves_));
  }
  /// Sums of several ranks are wide.
  bool wide_from(std::uint32_t node, std::uint32_t b) const {
    return shape_.widened && (!alone_on(node) || !is_leaf(node, b));
  }
  std::uint32_t add(const char* name, Steps steps) {
    return Levels::add(all_blocks(name, Buffer::input, std::move(steps)));
  }
  void fill(std::uint32_t lane, const char* name, Steps steps, int flag) {
    plan_.lanes[lane] = all_blocks(name, Buffer::input, std::move(steps));
    if (flag >= 0) plan_.lanes[lane].publishes = narrowed<std::int16_t>(flag);
  }
  /// The lanes that send block j to the child nodes when `first` says that it is there.
  void send_to_children(std::uint32_t j, const Step& first, const Range& from, Steps* sent) {
    for (const std::uint32_t child : children(j)) {
      const std::uint32_t lane =
          add("send", {first, send(owner_on(child, j), fixed(j), fixed(j), from)});
      sent->push_back(await(lane, fixed(0)));
    }
  }

  void broadcast_from_root_node();
  void broadcast_on_other_node();

  const std::uint32_t root_node_, root_, halves_, blocks_;
};

void Rooted::broadcast() {
  plan_.scratch_blocks = blocks_;
  if (at_root_node()) {
    broadcast_from_root_node();
  } else {
    broadcast_on_other_node();
  }
}

void Rooted::broadcast_from_root_node() {
  const bool is_root = own_ == root_;
  const std::uint32_t take_lane = reserve();  // the root's: stage; the others': collect
  Steps take, done = {await(take_lane, fixed(0))};
  if (!is_root) take = {wait(fixed(root_), ready)};
  for (std::uint32_t j = 0; j < blocks_; ++j) {
    const Index b = fixed(j);
    take.push_back(is_root ? copy(b, r_.input(b), {r_.scratch(b), r_.output(b)})
                           : copy(b, at(r_.scratch(b), fixed(root_)), {r_.output(b)}));
    if (local_owner(j) != own_) continue;
    const Step there = is_root ? await(take_lane, fixed(0)) : wait(fixed(root_), ready);
    send_to_children(j, there, at(r_.scratch(b), fixed(root_)), &done);
  }
  const std::uint32_t done_lane = reserve();
  fill(done_lane, "done", std::move(done), is_root ? -1 : consumed);
  if (is_root) {
    take.insert(take.begin(), await(done_lane, fixed(0), slots));
    if (!one_local_rank()) take.insert(take.begin(), wait_all(consumed, slots));
  }
  fill(take_lane, is_root ? "stage" : "collect", std::move(take), is_root ? ready : -1);
}

void Rooted::broadcast_on_other_node() {
  const std::uint32_t done_lane = reserve();
  Steps there, collect, done;
  for (const std::uint32_t j : blocks_of(own_)) {
    const Index b = fixed(j);
    const Range place = one_local_rank() ? r_.output(b) : r_.scratch(b);
    Steps steps;
    if (!one_local_rank()) {
      steps = {wait_all(consumed, slots), await(done_lane, fixed(0), slots)};
    }
    steps.push_back(recv(owner_on(parent(j), j), b, b, place));
    const Step received = await(add("receive", std::move(steps)), fixed(0));
    there.push_back(received);
    collect.push_back(received);
    if (!one_local_rank()) collect.push_back(copy(b, place, {r_.output(b)}));
    send_to_children(j, received, place, &done);
  }
  if (!one_local_rank()) {
    plan_.lanes[add("there", std::move(there))].publishes = ready;
    for (std::uint32_t i = 1; i < locals_; ++i) {
      const std::uint32_t peer = (own_ + i) % locals_;
      collect.push_back(wait(fixed(peer), ready));
      for (const std::uint32_t j : blocks_of(peer)) {
        const Index b = fixed(j);
        collect.push_back(copy(b, at(r_.scratch(b), fixed(peer)), {r_.output(b)}));
      }
    }
  }
  done.push_back(await(add("collect", std::move(collect)), fixed(0)));
  fill(done_lane, "done", std::move(done), one_local_rank() ? -1 : consumed);
}

void Rooted::reduce() {
  const bool is_root = own_ == root_ && at_root_node();
  constexpr std::uint32_t most_children = 2;
  const std::uint32_t of_smallest = layout_.ranks_of_smallest();
  const std::uint32_t owned = ((blocks_ / halves_ - 1) / of_smallest + 1) * halves_;
  plan_.scratch_blocks = blocks_ + owned * (1 + most_children);
  plan_.wide_scratch = shape_.widened;
  std::uint32_t next = blocks_;
  if (!one_local_rank()) {
    Steps stage = {wait_all(folded, slots)};
    for (std::uint32_t j = 0; j < blocks_; ++j) {
      const Index b = fixed(j);
      if (local_owner(j) != own_) stage.push_back(copy(b, r_.input(b), {r_.scratch(b)}));
    }
    plan_.lanes[add("stage", std::move(stage))].publishes = ready;
  }
  Steps all_folded;
  for (const std::uint32_t j : blocks_of(own_)) {
    const Index b = fixed(j);
    std::vector<Range> parts =
        in_rank_order(own_, locals_, r_.input(b), at(r_.scratch(b), by_source(0)));
    if (one_local_rank() && is_leaf(node_, j) && !at_root_node()) {
      add("send", {send(owner_on(parent(j), j), b, b, r_.input(b))});
      continue;
    }
    const std::uint32_t fold_lane = reserve();
    Steps steps;
    if (!one_local_rank()) steps = {wait_all(ready)};
    for (const std::uint32_t child : children(j)) {
      const Range part = r_.scratch(fixed(next++), wide_from(child, j));
      const std::uint32_t received =
          add("receive", {await(fold_lane, fixed(0), slots), recv(owner_on(child, j), b, b, part)});
      steps.push_back(await(received, fixed(0)));
      parts.push_back(part);
    }
    if (is_root) {
      steps.push_back(finish(b, std::move(parts), {r_.output(b)}));
    } else if (at_root_node()) {
      steps.push_back(wait(fixed(root_), consumed, slots));
      steps.push_back(finish(b, std::move(parts), {r_.scratch(b)}));
    } else {
      const Range sum = r_.scratch(fixed(next++), wide_from(node_, j));
      const std::uint32_t sent =
          add("send", {await(fold_lane, fixed(0)), send(owner_on(parent(j), j), b, b, sum)});
      steps.push_back(await(sent, fixed(0), slots));
      steps.push_back(fold(b, std::move(parts), sum));
    }
    fill(fold_lane, "fold", std::move(steps), -1);
    all_folded.push_back(await(fold_lane, fixed(0)));
  }
  if (one_local_rank()) return;
  plan_.lanes[add("folded", std::move(all_folded))].publishes = folded;
  if (!is_root) return;
  Steps collect;
  for (std::uint32_t i = 1; i < locals_; ++i) {
    const std::uint32_t peer = (own_ + i) % locals_;
    collect.push_back(wait(fixed(peer), folded));
    for (const std::uint32_t j : blocks_of(peer)) {
      collect.push_back(
          copy(fixed(j), at(r_.scratch(fixed(j)), fixed(peer)), {r_.output(fixed(j))}));
    }
  }
  plan_.lanes[add("collect", std::move(collect))].publishes = consumed;
}

}  // namespace

void two_level_broadcast(Plan& plan, const Shape& shape) { Rooted(plan, shape).broadcast(); }
void two_level_reduce(Plan& plan, const Shape& shape) { Rooted(plan, shape).reduce(); }

}  // namespace hocket::internal::algorithms
