#include <algorithm>
#include <iterator>
#include <string_view>

#include "collectives/algorithms.h"
#include "collectives/builders.h"
#include "collectives/steps.h"

namespace hocket {

namespace {
using enum Collective;
constexpr bool board = true, messages = false;         // load_store
constexpr bool in_order = true, in_own_order = false;  // rank_order
constexpr Builder table[] = {
    {"inline", all_reduce, board, in_order, build_inline},
    {"inline", broadcast, board, in_order, build_inline},
    {"inline", all_gather, board, in_order, build_inline},
    {"inline", reduce_scatter, board, in_order, build_inline},
    {"inline", barrier, board, in_order, build_inline},
    {"one-shot", all_reduce, board, in_order, build_one_shot},
    {"one-shot", broadcast, board, in_order, build_one_shot},
    {"one-shot", all_gather, board, in_order, build_one_shot},
    {"one-shot", reduce_scatter, board, in_order, build_one_shot},
    {"staged", all_reduce, board, in_order, build_staged},
    {"staged", broadcast, board, in_order, build_staged},
    {"staged", all_gather, board, in_order, build_staged},
    {"staged", reduce_scatter, board, in_order, build_staged},
    {"direct", all_reduce, board, in_order, build_direct},
    {"direct", broadcast, board, in_order, build_direct},
    {"direct", all_gather, board, in_order, build_direct},
    {"direct", reduce_scatter, board, in_order, build_direct},
    {"one-shot", all_reduce, messages, in_order, build_exchange},
    {"one-shot", all_gather, messages, in_order, build_exchange},
    {"one-shot", barrier, messages, in_order, build_exchange},
    {"owner-fold", all_reduce, messages, in_order, build_owner_fold},
    {"owner-fold", reduce_scatter, messages, in_order, build_owner_fold},
    {"ring", all_reduce, messages, in_own_order, build_ring},
    {"ring", all_gather, messages, in_order, build_ring},
    {"ring", reduce_scatter, messages, in_own_order, build_ring},
    {"tree", all_reduce, messages, in_own_order, build_tree},
    {"tree", broadcast, messages, in_order, build_tree},
    {"tree", barrier, messages, in_order, build_tree},
    {"message", send, messages, in_order, build_message},
    {"message", recv, messages, in_order, build_message},

};
}  // namespace

std::span<const Builder> builders() { return table; }

const Builder* find_builder(const char* algorithm, Collective collective, bool load_store) {
  const auto it = std::ranges::find_if(table, [&](const Builder& b) {
    return std::string_view(b.algorithm) == algorithm && b.collective == collective &&
           b.load_store == load_store;
  });
  return it == std::end(table) ? nullptr : it;
}

namespace steps {

Plan empty_plan(const Shape& shape, const char* algorithm, bool load_store, std::uint32_t blocks) {
  Plan plan;
  plan.algorithm = algorithm;
  plan.shape = shape;
  plan.load_store = load_store;
  plan.input_blocks = plan.output_blocks = blocks;
  const auto ranks = static_cast<std::uint32_t>(shape.ranks);
  switch (shape.collective) {
    case all_gather:
      plan.input_blocks = 1;
      plan.output_blocks = ranks;
      break;
    case reduce_scatter:
      plan.input_blocks = ranks;
      plan.output_blocks = 1;
      break;
    case barrier:
      plan.input_blocks = plan.output_blocks = 0;
      break;
    default:
      break;
  }
  return plan;
}

Plan alone(const Shape& shape, const char* algorithm) {
  Plan plan = empty_plan(shape, algorithm, false, 1);
  plan.single_chunk = true;
  if (shape.collective == barrier) return plan;
  const bool reduces = shape.collective == all_reduce || shape.collective == reduce_scatter;
  plan.lanes = {{reduces ? finish(0, {input(0)}, {output(0)}) : copy(0, input(0), {output(0)})}};
  return plan;
}

Steps meet_all() { return {arrive(), await_arrival()}; }

std::vector<Range> in_rank_order(const Shape& shape, Range mine, Range theirs) {
  std::vector<Range> ranges(shape.ranks, theirs);
  for (int r = 0; r < shape.ranks; ++r) ranges[r].rank = static_cast<std::int16_t>(r);
  ranges[shape.rank] = mine;
  return ranges;
}

}  // namespace steps
}  // namespace hocket
