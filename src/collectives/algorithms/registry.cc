#include <algorithm>
#include <iterator>
#include <string_view>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/builders.h"
#include "collectives/plan/steps.h"

namespace hocket::internal {

namespace {
using enum Collective;
constexpr bool board = true, messages = false;         // load_store
constexpr bool in_order = true, in_own_order = false;  // rank_order
constexpr bool cut = true, whole = false;              // cuts
constexpr Builder table[] = {
    {"inline", all_reduce, board, in_order, whole, algorithms::inline_all_reduce},
    {"inline", broadcast, board, in_order, whole, algorithms::inline_broadcast},
    {"inline", all_gather, board, in_order, whole, algorithms::inline_all_gather},
    {"inline", reduce_scatter, board, in_order, whole, algorithms::inline_reduce_scatter},
    {"inline", barrier, board, in_order, whole, algorithms::inline_barrier},
    {"one-shot", all_reduce, board, in_order, whole, algorithms::one_shot_all_reduce},
    {"one-shot", broadcast, board, in_order, whole, algorithms::one_shot_broadcast},
    {"one-shot", all_gather, board, in_order, whole, algorithms::one_shot_all_gather},
    {"one-shot", reduce_scatter, board, in_order, whole, algorithms::one_shot_reduce_scatter},
    {"staged", all_reduce, board, in_order, cut, algorithms::staged_all_reduce},
    {"staged", broadcast, board, in_order, whole, algorithms::staged_broadcast},
    {"staged", all_gather, board, in_order, whole, algorithms::staged_all_gather},
    {"staged", reduce_scatter, board, in_order, whole, algorithms::staged_reduce_scatter},
    {"direct", all_reduce, board, in_order, cut, algorithms::direct_all_reduce},
    {"direct", broadcast, board, in_order, whole, algorithms::direct_broadcast},
    {"direct", all_gather, board, in_order, whole, algorithms::direct_all_gather},
    {"direct", reduce_scatter, board, in_order, whole, algorithms::direct_reduce_scatter},
    {"one-shot", all_reduce, messages, in_order, whole, algorithms::exchange_all_reduce},
    {"one-shot", all_gather, messages, in_order, whole, algorithms::exchange_all_gather},
    {"one-shot", barrier, messages, in_order, whole, algorithms::exchange_barrier},
    {"owner-fold", all_reduce, messages, in_order, cut, algorithms::owner_fold},
    {"owner-fold", reduce_scatter, messages, in_order, whole, algorithms::owner_fold},
    {"ring", all_reduce, messages, in_own_order, cut, algorithms::ring},
    {"ring", all_gather, messages, in_order, whole, algorithms::ring},
    {"ring", reduce_scatter, messages, in_own_order, whole, algorithms::ring},
    {"tree", all_reduce, messages, in_own_order, whole, algorithms::tree_all_reduce},
    {"tree", broadcast, messages, in_order, whole, algorithms::tree_broadcast},
    {"tree", barrier, messages, in_order, whole, algorithms::tree_barrier},
    {"message", send, messages, in_order, whole, algorithms::message},
    {"message", recv, messages, in_order, whole, algorithms::message},
};

/// A plan that has only the blocks of the caller's buffers.
Plan empty_plan(const Builder& builder, const Shape& shape) {
  Plan plan;
  plan.algorithm = builder.algorithm;
  plan.shape = shape;
  plan.load_store = builder.load_store;
  const auto ranks = static_cast<std::uint32_t>(shape.ranks);
  plan.input_blocks = plan.output_blocks = builder.cuts ? ranks : 1;
  if (shape.collective == all_gather) plan.output_blocks = ranks;
  if (shape.collective == reduce_scatter) plan.input_blocks = ranks;
  if (shape.collective == barrier) plan.input_blocks = plan.output_blocks = 0;
  return plan;
}

/// The plan of a communicator of one rank: it copies the input to the output.
Plan alone(const Builder& builder, const Shape& shape) {
  Plan plan = empty_plan(builder, shape);
  plan.load_store = false;
  plan.single_chunk = true;
  if (shape.collective == barrier) return plan;
  const bool reduces = shape.collective == all_reduce || shape.collective == reduce_scatter;
  plan.lanes = {{reduces ? steps::finish(0, {steps::input(0)}, {steps::output(0)})
                         : steps::copy(0, steps::input(0), {steps::output(0)})}};
  return plan;
}
}  // namespace

std::span<const Builder> builders() { return table; }

Plan Builder::build(const Shape& shape) const {
  if (shape.ranks == 1 && !is_p2p(collective)) return alone(*this, shape);
  Plan plan = empty_plan(*this, shape);
  lay(plan, shape);
  return plan;
}

const Builder* find_builder(const char* algorithm, Collective collective, bool load_store) {
  const auto it = std::ranges::find_if(table, [&](const Builder& b) {
    return std::string_view(b.algorithm) == algorithm && b.collective == collective &&
           b.load_store == load_store;
  });
  return it == std::end(table) ? nullptr : it;
}

}  // namespace hocket::internal
