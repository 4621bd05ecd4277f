// two-level broadcast and reduce: a binary tree over the nodes, load and store within them, all of
// it at the same time on different chunks.
//
// As in two_level.cc, the message is cut in S shards, where S is the number of ranks of the largest
// node; local rank j mod n_i owns shard j on a node of n_i ranks, so all ranks of a node send and
// receive. Node v of the tree has the parent (v - 1) / 2; the root's node is 0.
//
//   broadcast, node 0: ranks 0 (root) and 1, node 1: ranks 2 and 3; 2 shards a b
//
//   rank 0                rank 1               rank 2               rank 3
//   stages a b                                                                lane stage
//   a -> rank 2           b, of rank 0's       receives a           receives b
//                         scratch, -> rank 3   into scratch         into scratch
//                         copies a b           copies a, and b      copies b, and a     lane
//                         collect
//                                              of rank 3            of rank 2
//
// A node sends the message at most twice, however many nodes there are: to its two children. A
// reduce goes the other way: the owner of a shard folds the contributions of its node and those
// which its owners on the child nodes send, and sends the sum to its owner on the parent node. On
// the root's node the owners' results are copied by the root. Sums of 16- and 8-bit floats cross
// as fp32.
//
// The tree over nodes with all ranks of a node at work is known from HAN (Luo et al., Cluster'20).
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { ready = 0, consumed = 1, folded = 2 };

constexpr int rooted_slots = 4;

class Rooted {
 public:
  Rooted(Plan& plan, const Shape& shape)
      : plan_(plan),
        shape_(shape),
        layout_(*shape.layout),
        nodes_(layout_.nodes()),
        node_(layout_.node_of(shape.rank)),
        root_node_(layout_.node_of(static_cast<std::uint32_t>(shape.root))),
        root_(layout_.local_rank(static_cast<std::uint32_t>(shape.root))),
        own_(layout_.local_rank(shape.rank)),
        locals_(static_cast<std::uint32_t>(plan.node.size())),
        shards_(layout_.ranks_of_largest()),
        r_(own_) {
    plan.slots = rooted_slots;
    plan.arrives_first = true;
    plan.cut = shards_;
  }

  void broadcast();
  void reduce();

 private:
  bool at_root_node() const { return node_ == root_node_; }
  bool alone() const { return locals_ == 1; }
  /// Number of a node in the tree, and the node with such a number.
  std::uint32_t place_of(std::uint32_t node) const { return (node + nodes_ - root_node_) % nodes_; }
  std::uint32_t node_at(std::uint32_t place) const { return (place + root_node_) % nodes_; }
  std::uint32_t parent() const { return node_at((place_of(node_) - 1) / 2); }
  std::vector<std::uint32_t> children() const {
    std::vector<std::uint32_t> found;
    const std::uint32_t first = 2 * place_of(node_) + 1;
    for (std::uint32_t place = first; place < first + 2 && place < nodes_; ++place) {
      found.push_back(node_at(place));
    }
    return found;
  }
  bool is_leaf(std::uint32_t node) const { return 2 * place_of(node) + 1 >= nodes_; }
  Index owner_on(std::uint32_t node, std::uint32_t shard) const {
    const std::vector<std::uint32_t>& ranks = layout_.ranks_of(node);
    return fixed(ranks[shard % ranks.size()]);
  }
  /// Sums of several ranks are wide.
  bool wide_from(std::uint32_t node) const {
    return shape_.widened && (layout_.ranks_of(node).size() > 1 || !is_leaf(node));
  }
  std::uint32_t add(const char* name, Steps steps) {
    plan_.lanes.push_back(all_blocks(name, Buffer::input, std::move(steps)));
    return next_lane() - 1;
  }
  std::uint32_t next_lane() const { return static_cast<std::uint32_t>(plan_.lanes.size()); }
  std::uint32_t reserve() {
    plan_.lanes.emplace_back();
    return next_lane() - 1;
  }
  void fill(std::uint32_t lane, const char* name, Steps steps, int flag) {
    plan_.lanes[lane] = all_blocks(name, Buffer::input, std::move(steps));
    if (flag >= 0) plan_.lanes[lane].publishes = static_cast<std::int16_t>(flag);
  }
  /// The lanes that send shard j to the child nodes when `first` says that it is there.
  void send_to_children(std::uint32_t j, const Step& first, const Range& from, Steps* sent) {
    for (const std::uint32_t child : children()) {
      const std::uint32_t lane =
          add("send", {first, send(owner_on(child, j), fixed(j), fixed(j), from)});
      sent->push_back(await(lane, fixed(0)));
    }
  }

  void broadcast_from_root_node();
  void broadcast_on_other_node();

  Plan& plan_;
  const Shape& shape_;
  const Layout& layout_;
  const std::uint32_t nodes_, node_, root_node_, root_, own_, locals_, shards_;
  const Ranges r_;
};

void Rooted::broadcast() {
  plan_.scratch_blocks = shards_;
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
  for (std::uint32_t j = 0; j < shards_; ++j) {
    const Index b = fixed(j);
    take.push_back(is_root ? copy(b, r_.input(b), {r_.scratch(b), r_.output(b)})
                           : copy(b, at(r_.scratch(b), fixed(root_)), {r_.output(b)}));
    if (j % locals_ != own_) continue;
    const Step there = is_root ? await(take_lane, fixed(0)) : wait(fixed(root_), ready);
    send_to_children(j, there, at(r_.scratch(b), fixed(root_)), &done);
  }
  const std::uint32_t done_lane = reserve();
  fill(done_lane, "done", std::move(done), is_root ? -1 : consumed);
  if (is_root) {
    take.insert(take.begin(), await(done_lane, fixed(0), rooted_slots));
    if (!alone()) take.insert(take.begin(), wait_all(consumed, rooted_slots));
  }
  fill(take_lane, is_root ? "stage" : "collect", std::move(take), is_root ? ready : -1);
}

void Rooted::broadcast_on_other_node() {
  const std::uint32_t done_lane = reserve();
  Steps there, collect, done;
  for (std::uint32_t j = own_; j < shards_; j += locals_) {
    const Index b = fixed(j);
    const Range place = alone() ? r_.output(b) : r_.scratch(b);
    Steps steps;
    if (!alone()) {
      steps = {wait_all(consumed, rooted_slots), await(done_lane, fixed(0), rooted_slots)};
    }
    steps.push_back(recv(owner_on(parent(), j), b, b, place));
    const Step received = await(add("receive", std::move(steps)), fixed(0));
    there.push_back(received);
    collect.push_back(received);
    if (!alone()) collect.push_back(copy(b, place, {r_.output(b)}));
    send_to_children(j, received, place, &done);
  }
  if (!alone()) {
    plan_.lanes[add("there", std::move(there))].publishes = ready;
    for (std::uint32_t i = 1; i < locals_; ++i) {
      const std::uint32_t peer = (own_ + i) % locals_;
      collect.push_back(wait(fixed(peer), ready));
      for (std::uint32_t j = peer; j < shards_; j += locals_) {
        const Index b = fixed(j);
        collect.push_back(copy(b, at(r_.scratch(b), fixed(peer)), {r_.output(b)}));
      }
    }
  }
  done.push_back(await(add("collect", std::move(collect)), fixed(0)));
  fill(done_lane, "done", std::move(done), alone() ? -1 : consumed);
}

void Rooted::reduce() {
  const bool is_root = own_ == root_ && at_root_node();
  constexpr std::uint32_t most_children = 2;
  const std::uint32_t of_smallest = layout_.ranks_of_smallest();
  const std::uint32_t owned = (shards_ - 1) / of_smallest + 1;
  plan_.scratch_blocks = shards_ + owned * (1 + most_children);
  plan_.wide_scratch = shape_.widened;
  std::uint32_t next = shards_;
  if (!alone()) {
    Steps stage = {wait_all(folded, rooted_slots)};
    for (std::uint32_t j = 0; j < shards_; ++j) {
      const Index b = fixed(j);
      if (j % locals_ != own_) stage.push_back(copy(b, r_.input(b), {r_.scratch(b)}));
    }
    plan_.lanes[add("stage", std::move(stage))].publishes = ready;
  }
  Steps all_folded;
  for (std::uint32_t j = own_; j < shards_; j += locals_) {
    const Index b = fixed(j);
    std::vector<Range> parts =
        in_rank_order(own_, locals_, r_.input(b), at(r_.scratch(b), by_source(0)));
    if (alone() && is_leaf(node_) && !at_root_node()) {
      add("send", {send(owner_on(parent(), j), b, b, r_.input(b))});
      continue;
    }
    const std::uint32_t fold_lane = reserve();
    Steps steps;
    if (!alone()) steps = {wait_all(ready)};
    for (const std::uint32_t child : children()) {
      const Range part = r_.scratch(fixed(next++), wide_from(child));
      const std::uint32_t received = add("receive", {await(fold_lane, fixed(0), rooted_slots),
                                                     recv(owner_on(child, j), b, b, part)});
      steps.push_back(await(received, fixed(0)));
      parts.push_back(part);
    }
    if (is_root) {
      steps.push_back(finish(b, std::move(parts), {r_.output(b)}));
    } else if (at_root_node()) {
      steps.push_back(wait(fixed(root_), consumed, rooted_slots));
      steps.push_back(finish(b, std::move(parts), {r_.scratch(b)}));
    } else {
      const Range sum = r_.scratch(fixed(next++), wide_from(node_));
      const std::uint32_t sent =
          add("send", {await(fold_lane, fixed(0)), send(owner_on(parent(), j), b, b, sum)});
      steps.push_back(await(sent, fixed(0), rooted_slots));
      steps.push_back(fold(b, std::move(parts), sum));
    }
    fill(fold_lane, "fold", std::move(steps), -1);
    all_folded.push_back(await(fold_lane, fixed(0)));
  }
  if (alone()) return;
  plan_.lanes[add("folded", std::move(all_folded))].publishes = folded;
  if (!is_root) return;
  Steps collect;
  for (std::uint32_t i = 1; i < locals_; ++i) {
    const std::uint32_t peer = (own_ + i) % locals_;
    collect.push_back(wait(fixed(peer), folded));
    for (std::uint32_t j = peer; j < shards_; j += locals_) {
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
