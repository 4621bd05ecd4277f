// tree: ceil(log2 p) steps; for small messages between nodes.
//
// The binomial tree. With v = rank - root (mod p), the children of v are v + 2^i < p for each 2^i
// below the lowest set bit of v (the root: for each 2^i). The subtree of child v + 2^i has the
// ranks v + 2^i .. v + 2^(i+1) - 1. A rank has lanes for its parent and for each child: O(log p).
//
//        0          broadcast: down. A rank receives into its output and sends from there; chunk
//       / \         by chunk, so a long message is a pipeline. The larger subtree comes first.
//      1   2
//          |        reduce: up. A rank folds its input and its children's partial results, in this
//          3        order (v; v+1; v+2..v+3; ...), in one step. The root is shape.root.
//
//                   all-reduce: up to rank 0, then down.
//
//   rank 0            rank 1            rank 2            rank 3            an all-reduce's lanes
//   receives b        b > 0             receives d        d > 2             receive up / send up
//   receives c+d                                                            receive up
//   folds to r                          folds, c+d > 0                      fold; send up
//   r > 2                               receives r                          send / receive down
//   r > 1             receives r        r > 3             receives r        send / receive down
//
// Partial results of fp16, bf16 and fp8 are sent as fp32; a leaf sends its input as it is; the root
// rounds once. Each subtree is folded before its parent's fold, so if p > 3 the bits differ from
// those of the plans that fold in rank order. In place, the result overwrites the input. An inner
// rank has folded its input before the result exists. The send of a leaf may not have ended, so a
// leaf awaits it before it receives the result.
//
// barrier: dissemination (Hensgen, Finkel, Manber 1988). In round i a rank sends to rank + 2^i and
// receives from rank - 2^i: half the steps of a way up and down the tree.
#include <bit>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int tree_slots = 2;
constexpr Index whole = {.base = 0}, up_tag = {.base = 0}, down_tag = {.base = 1};

/// The number of rounds in which the distance doubles until it reaches all ranks.
std::uint32_t rounds_of(const Shape& shape) { return std::bit_width(shape.ranks - 1); }

/// The position of a rank in the binomial tree.
class TreePlace {
 public:
  TreePlace(const Shape& shape, std::uint32_t root)
      : ranks_(shape.ranks),
        root_(root),
        v_((shape.rank + shape.ranks - root) % shape.ranks),
        to_parent_(v_ == 0 ? rounds_of(shape) : std::countr_zero(v_)) {
    while (children_ < to_parent_ && v_ + (1U << children_) < ranks_) ++children_;
  }

  bool is_root() const { return v_ == 0; }
  bool is_leaf() const { return children_ == 0; }
  Index parent() const { return rank_of(v_ - (1U << to_parent_)); }
  /// Child 0 has the smallest subtree.
  std::uint32_t children() const { return children_; }
  Index child(std::uint32_t i) const { return rank_of(v_ + (1U << i)); }
  bool child_is_leaf(std::uint32_t i) const { return i == 0 || v_ + (1U << i) + 1 >= ranks_; }

 private:
  Index rank_of(std::uint32_t v) const { return fixed((std::uint64_t{v} + root_) % ranks_); }

  std::uint32_t ranks_, root_, v_;
  std::uint32_t to_parent_;  // the parent is v - 2^to_parent
  std::uint32_t children_ = 0;
};

/// Lanes that fold the inputs of all ranks on the way up. They are lane i for the partial result of
/// child i, then `fold` (not in a leaf), then `send up` (not in the root).
void lay_up(Plan& plan, const TreePlace& place) {
  const Shape& shape = plan.shape;
  const Ranges r(shape.rank);
  const std::uint32_t fold_lane = place.children(), send_lane = fold_lane + 1;
  plan.slots = tree_slots;
  plan.wide_scratch = shape.widened;
  const std::uint32_t sum_block = rounds_of(shape);  // children's partial results come before it
  plan.scratch_blocks = sum_block + 1;

  std::vector<Step> steps;
  std::vector<Range> parts = {r.input(whole)};
  for (std::uint32_t i = 0; i < place.children(); ++i) {
    const Range part = r.scratch(fixed(i), shape.widened && !place.child_is_leaf(i));
    plan.lanes.push_back(one_block(
        "receive up", Buffer::input, whole,
        {await(fold_lane, fixed(0), tree_slots), recv(place.child(i), up_tag, whole, part)}));
    steps.push_back(await(i, fixed(0)));
    parts.push_back(part);
  }
  if (place.is_root()) {
    steps.push_back(finish(whole, std::move(parts), {r.output(whole)}));
    plan.lanes.push_back(one_block("fold", Buffer::input, whole, std::move(steps)));
    return;
  }
  if (place.is_leaf()) {
    plan.lanes.push_back(one_block("send up", Buffer::input, whole,
                                   {send(place.parent(), up_tag, whole, r.input(whole))}));
    return;
  }
  const Range sum = r.scratch(fixed(sum_block), shape.widened);
  steps.push_back(await(send_lane, fixed(0), tree_slots));
  steps.push_back(fold(whole, std::move(parts), sum));
  plan.lanes.push_back(one_block("fold", Buffer::input, whole, std::move(steps)));
  plan.lanes.push_back(
      one_block("send up", Buffer::input, whole,
                {await(fold_lane, fixed(0)), send(place.parent(), up_tag, whole, sum)}));
}

}  // namespace

void tree_all_reduce(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const TreePlace place(shape, 0);
  lay_up(plan, place);
  // The lane after which the result is in the output: the root's fold, or `receive down`.
  const auto last_up = static_cast<std::uint32_t>(plan.lanes.size() - 1);
  const std::uint32_t result_lane = place.is_root() ? last_up : last_up + 1;
  if (!place.is_root()) {
    std::vector<Step> steps;
    if (place.is_leaf()) steps.push_back(await(last_up, fixed(0)));
    steps.push_back(recv(place.parent(), down_tag, whole, r.output(whole)));
    plan.lanes.push_back(one_block("receive down", Buffer::output, whole, std::move(steps)));
  }
  for (std::uint32_t i = place.children(); i-- > 0;) {
    plan.lanes.push_back(one_block(
        "send down", Buffer::output, whole,
        {await(result_lane, fixed(0)), send(place.child(i), down_tag, whole, r.output(whole))}));
  }
}

void tree_reduce(Plan& plan, const Shape& shape) {
  lay_up(plan, TreePlace(shape, static_cast<std::uint32_t>(shape.root)));
}

void tree_broadcast(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const TreePlace place(shape, static_cast<std::uint32_t>(shape.root));
  constexpr std::uint32_t receive_lane = 0;
  if (!place.is_root()) {
    plan.lanes.push_back(one_block("receive down", Buffer::output, whole,
                                   {recv(place.parent(), down_tag, whole, r.output(whole))}));
  }
  for (std::uint32_t i = place.children(); i-- > 0;) {
    if (place.is_root()) {
      plan.lanes.push_back(one_block("send down", Buffer::input, whole,
                                     {send(place.child(i), down_tag, whole, r.input(whole))}));
    } else {
      plan.lanes.push_back(one_block(
          "send down", Buffer::output, whole,
          {await(receive_lane, fixed(0)), send(place.child(i), down_tag, whole, r.output(whole))}));
    }
  }
  if (place.is_root()) {
    plan.lanes.push_back(
        one_block("copy", Buffer::input, whole, {copy(whole, r.input(whole), {r.output(whole)})}));
  }
}

void tree_barrier(Plan& plan, const Shape& shape) {
  const std::uint32_t rounds = rounds_of(shape);
  // Lane `receive` of a round ends after those of all earlier rounds, for the next send. It does
  // not delay its recv.
  const auto receive_lane = [](std::uint32_t round) { return 2 * round + 1; };
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint64_t distance = std::uint64_t{1} << round;
    const Index to = fixed((shape.rank + distance) % shape.ranks);
    const Index from = fixed((shape.rank + shape.ranks - distance) % shape.ranks);
    const Index tag = fixed(0);
    std::vector<Step> sends, receives = {recv_empty(from, tag)};
    if (round > 0) {
      const Step earlier = await_end(receive_lane(round - 1), fixed(0));
      sends.push_back(earlier);
      if (round + 1 < rounds) receives.push_back(earlier);
    }
    sends.push_back(send_empty(to, tag));
    plan.lanes.push_back(once("send", std::move(sends)));
    plan.lanes.push_back(once("receive", std::move(receives)));
  }
}

}  // namespace hocket::internal::algorithms
