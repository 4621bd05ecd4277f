// What all trees have in common.
//
// Partial results of fp16, bf16 and fp8 are sent as fp32; a leaf sends its input as it is; the root
// rounds once.
//
// In place, the result overwrites the input. A rank with children has folded its input before the
// result exists. A leaf sends its input, and that send may not have ended when the result comes, so
// a leaf awaits its end before it receives the result.
#include "collectives/algorithms/trees.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

TreeEdges nomial_edges(const Shape& shape, std::uint32_t root, std::uint32_t radix) {
  const std::uint64_t ranks = shape.ranks;
  const std::uint64_t v = (shape.rank + ranks - root) % ranks;
  const auto rank_of = [&](std::uint64_t u) { return narrowed<std::uint32_t>((u + root) % ranks); };
  TreeEdges edges;
  std::uint64_t unit = 1;  // of the last digit that is not 0
  for (; unit < ranks && v / unit % radix == 0; unit *= radix) {
    for (std::uint64_t digit = 1; digit < radix; ++digit) {
      const std::uint64_t child = v + digit * unit;
      if (child >= ranks) break;
      edges.children.push_back({.rank = rank_of(child),
                                .is_leaf = unit == 1 || child + 1 >= ranks,
                                .distance = narrowed<std::uint32_t>(digit * unit),
                                .size = narrowed<std::uint32_t>(std::min(unit, ranks - child))});
    }
  }
  if (v != 0) edges.parent = rank_of(v - v / unit % radix * unit);
  return edges;
}

std::uint32_t most_nomial_children(const Shape& shape, std::uint32_t radix) {
  std::uint32_t most = 0;
  for (std::uint64_t unit = 1; unit < shape.ranks; unit *= radix) most += radix - 1;
  return most;
}

std::uint32_t lay_up(Plan& plan, const TreeEdges& edges, const TreePart& part) {
  const Shape& shape = plan.shape;
  const Ranges r(shape.rank);
  const Index block = part.block, tag = fixed(part.up_tag);
  const auto children = narrowed<std::uint32_t>(edges.children.size());
  const auto first_lane = narrowed<std::uint32_t>(plan.lanes.size());
  const std::uint32_t fold_lane = first_lane + children, send_lane = fold_lane + 1;
  plan.slots = tree_slots;
  plan.wide_scratch = shape.widened;

  std::vector<Step> steps;
  std::vector<Range> parts = {r.input(block)};
  for (std::uint32_t i = 0; i < children; ++i) {
    const TreeEdges::Child& child = edges.children[i];
    const Range sum = r.scratch(fixed(part.first_scratch + i), shape.widened && !child.is_leaf);
    plan.lanes.push_back(one_block(
        "receive up", Buffer::input, block,
        {await(fold_lane, fixed(0), tree_slots), recv(fixed(child.rank), tag, block, sum)}));
    steps.push_back(await(first_lane + i, fixed(0)));
    parts.push_back(sum);
  }
  if (edges.is_root()) {
    steps.push_back(finish(block, std::move(parts), {r.output(block)}));
    plan.lanes.push_back(one_block("fold", Buffer::input, block, std::move(steps)));
    return fold_lane;
  }
  const Index parent = fixed(edges.parent);
  if (edges.is_leaf()) {
    plan.lanes.push_back(
        one_block("send up", Buffer::input, block, {send(parent, tag, block, r.input(block))}));
    return fold_lane;
  }
  const Range sum = r.scratch(fixed(part.first_scratch + part.most_children), shape.widened);
  steps.push_back(await(send_lane, fixed(0), tree_slots));
  steps.push_back(fold(block, std::move(parts), sum));
  plan.lanes.push_back(one_block("fold", Buffer::input, block, std::move(steps)));
  plan.lanes.push_back(one_block("send up", Buffer::input, block,
                                 {await(fold_lane, fixed(0)), send(parent, tag, block, sum)}));
  return send_lane;
}

void lay_result_down(Plan& plan, const TreeEdges& edges, const TreePart& part,
                     std::uint32_t last_up) {
  const Ranges r(plan.shape.rank);
  const Index block = part.block, tag = fixed(part.down_tag);
  // The lane after which the result is in the output: the root's fold, or `receive down`.
  const std::uint32_t result_lane = edges.is_root() ? last_up : last_up + 1;
  if (!edges.is_root()) {
    std::vector<Step> steps;
    if (edges.is_leaf()) steps.push_back(await(last_up, fixed(0)));
    steps.push_back(recv(fixed(edges.parent), tag, block, r.output(block)));
    plan.lanes.push_back(one_block("receive down", Buffer::output, block, std::move(steps)));
  }
  for (std::size_t i = edges.children.size(); i-- > 0;) {
    const Index child = fixed(edges.children[i].rank);
    plan.lanes.push_back(
        one_block("send down", Buffer::output, block,
                  {await(result_lane, fixed(0)), send(child, tag, block, r.output(block))}));
  }
}

void lay_down(Plan& plan, const TreeEdges& edges, const TreePart& part) {
  const Ranges r(plan.shape.rank);
  const Index block = part.block, tag = fixed(part.down_tag);
  const auto receive_lane = narrowed<std::uint32_t>(plan.lanes.size());
  if (!edges.is_root()) {
    plan.lanes.push_back(one_block("receive down", Buffer::output, block,
                                   {recv(fixed(edges.parent), tag, block, r.output(block))}));
  }
  for (std::size_t i = edges.children.size(); i-- > 0;) {
    const Index child = fixed(edges.children[i].rank);
    if (edges.is_root()) {
      plan.lanes.push_back(
          one_block("send down", Buffer::input, block, {send(child, tag, block, r.input(block))}));
    } else {
      plan.lanes.push_back(
          one_block("send down", Buffer::output, block,
                    {await(receive_lane, fixed(0)), send(child, tag, block, r.output(block))}));
    }
  }
  if (edges.is_root()) {
    plan.lanes.push_back(
        one_block("copy", Buffer::input, block, {copy(block, r.input(block), {r.output(block)})}));
  }
}

}  // namespace hocket::internal::algorithms
