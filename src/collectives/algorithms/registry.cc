#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/assert.h"
#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/builders.h"
#include "collectives/plan/steps.h"

namespace hocket::internal {

namespace {
using enum Collective;
constexpr Medium node = Medium::node, messages = Medium::messages, both = Medium::both;
constexpr bool in_order = true, in_own_order = false;  // rank_order
constexpr bool cut = true, whole = false;              // cuts
constexpr bool any = true, equal = false;              // varying
constexpr bool alike = true, unlike = false;           // symmetric
constexpr Builder table[] = {
    {"inline", all_reduce, node, in_order, whole, equal, alike, algorithms::inline_all_reduce},
    {"inline", reduce, node, in_order, whole, equal, alike, algorithms::inline_reduce},
    {"inline", broadcast, node, in_order, whole, equal, alike, algorithms::inline_broadcast},
    {"inline", all_gather, node, in_order, whole, any, alike, algorithms::inline_all_gather},
    {"inline", gather, node, in_order, whole, equal, alike, algorithms::inline_gather},
    {"inline", reduce_scatter, node, in_order, whole, any, alike,
     algorithms::inline_reduce_scatter},
    {"inline", scatter, node, in_order, whole, equal, alike, algorithms::inline_scatter},
    {"inline", all_to_all, node, in_order, whole, equal, alike, algorithms::inline_all_to_all},
    {"inline", barrier, node, in_order, whole, equal, alike, algorithms::inline_barrier},
    {"one-shot", all_reduce, node, in_order, whole, equal, alike, algorithms::one_shot_all_reduce},
    {"one-shot", reduce, node, in_order, whole, equal, alike, algorithms::one_shot_reduce},
    {"one-shot", broadcast, node, in_order, whole, equal, alike, algorithms::one_shot_broadcast},
    {"one-shot", all_gather, node, in_order, whole, any, alike, algorithms::one_shot_all_gather},
    {"one-shot", gather, node, in_order, whole, equal, alike, algorithms::one_shot_gather},
    {"one-shot", reduce_scatter, node, in_order, whole, any, alike,
     algorithms::one_shot_reduce_scatter},
    {"one-shot", scatter, node, in_order, whole, equal, alike, algorithms::one_shot_scatter},
    {"one-shot", all_to_all, node, in_order, whole, equal, alike, algorithms::one_shot_all_to_all},
    {"staged", all_reduce, node, in_order, cut, equal, alike, algorithms::staged_all_reduce},
    {"staged", reduce, node, in_order, cut, equal, alike, algorithms::staged_reduce},
    {"root-fold", reduce, node, in_order, whole, equal, alike, algorithms::root_fold},
    {"staged", broadcast, node, in_order, whole, equal, alike, algorithms::staged_broadcast},
    {"staged", all_gather, node, in_order, whole, any, alike, algorithms::staged_all_gather},
    {"staged", gather, node, in_order, whole, equal, alike, algorithms::staged_gather},
    {"staged", reduce_scatter, node, in_order, whole, any, alike,
     algorithms::staged_reduce_scatter},
    {"staged", scatter, node, in_order, whole, equal, alike, algorithms::staged_scatter},
    {"staged", all_to_all, node, in_order, whole, equal, alike, algorithms::staged_all_to_all},
    {"eager", gather, node, in_order, whole, any, alike, algorithms::eager_gather},
    {"eager", scatter, node, in_order, whole, any, alike, algorithms::eager_scatter},
    {"eager", all_to_all, node, in_order, whole, any, alike, algorithms::eager_all_to_all},
    {"direct", all_reduce, node, in_order, cut, equal, alike, algorithms::direct_all_reduce},
    {"direct", reduce, node, in_order, cut, equal, alike, algorithms::direct_reduce},
    {"direct", broadcast, node, in_order, whole, equal, alike, algorithms::direct_broadcast},
    {"direct", all_gather, node, in_order, whole, any, alike, algorithms::direct_all_gather},
    {"direct", gather, node, in_order, whole, equal, alike, algorithms::direct_gather},
    {"direct", reduce_scatter, node, in_order, whole, any, alike,
     algorithms::direct_reduce_scatter},
    {"direct", scatter, node, in_order, whole, equal, alike, algorithms::direct_scatter},
    {"direct", all_to_all, node, in_order, whole, equal, alike, algorithms::direct_all_to_all},
    {"one-shot", all_reduce, messages, in_order, whole, equal, alike,
     algorithms::exchange_all_reduce},
    {"one-shot", all_gather, messages, in_order, whole, any, alike,
     algorithms::exchange_all_gather},
    {"one-shot", barrier, messages, in_order, whole, equal, alike, algorithms::exchange_barrier},
    {"owner-fold", all_reduce, messages, in_order, cut, equal, alike, algorithms::owner_fold},
    {"owner-fold", reduce_scatter, messages, in_order, whole, any, alike, algorithms::owner_fold},
    {"pairs", reduce, messages, in_order, whole, equal, alike, algorithms::pairs_reduce},
    {"pairs", gather, messages, in_order, whole, any, alike, algorithms::pairs_gather},
    {"pairs", scatter, messages, in_order, whole, any, alike, algorithms::pairs_scatter},
    {"pairs", all_to_all, messages, in_order, whole, any, alike, algorithms::pairs_all_to_all},
    {"ring", all_reduce, messages, in_own_order, cut, equal, alike, algorithms::ring},
    {"ring", all_gather, messages, in_order, whole, any, alike, algorithms::ring},
    {"ring", reduce_scatter, messages, in_own_order, whole, any, alike, algorithms::ring},
    {"tree", all_reduce, messages, in_own_order, whole, equal, unlike, algorithms::tree_all_reduce},
    {"tree", reduce, messages, in_own_order, whole, equal, unlike, algorithms::tree_reduce},
    {"tree", broadcast, messages, in_order, whole, equal, unlike, algorithms::tree_broadcast},
    {"tree", barrier, messages, in_order, whole, equal, alike, algorithms::tree_barrier},
    {"k-nomial", reduce, messages, in_own_order, whole, equal, unlike, algorithms::k_nomial_reduce},
    {"k-nomial", broadcast, messages, in_order, whole, equal, unlike,
     algorithms::k_nomial_broadcast},
    {"k-nomial", gather, messages, in_order, whole, equal, unlike, algorithms::k_nomial_gather},
    {"k-nomial", scatter, messages, in_order, whole, equal, unlike, algorithms::k_nomial_scatter},
    {"double-tree", all_reduce, messages, in_own_order, whole, equal, unlike,
     algorithms::double_tree_all_reduce},
    {"double-tree", reduce, messages, in_own_order, whole, equal, unlike,
     algorithms::double_tree_reduce},
    {"double-tree", broadcast, messages, in_order, whole, equal, unlike,
     algorithms::double_tree_broadcast},
    {"recursive-doubling", all_reduce, messages, in_own_order, whole, equal, unlike,
     algorithms::recursive_doubling},
    {"circulant", all_reduce, messages, in_own_order, cut, equal, alike, algorithms::circulant},
    {"circulant", all_gather, messages, in_order, whole, any, alike, algorithms::circulant},
    {"circulant", reduce_scatter, messages, in_own_order, whole, any, alike, algorithms::circulant},
    {"pat", all_gather, messages, in_order, whole, any, alike, algorithms::pat},
    {"pat", reduce_scatter, messages, in_own_order, whole, any, alike, algorithms::pat},
    {"bruck", all_to_all, messages, in_order, whole, equal, alike, algorithms::bruck},
    {"two-level", all_reduce, both, in_own_order, whole, equal, alike,
     algorithms::two_level_all_reduce},
    {"two-level", all_gather, both, in_order, whole, any, alike, algorithms::two_level_all_gather},
    {"two-level", reduce_scatter, both, in_own_order, whole, any, alike,
     algorithms::two_level_reduce_scatter},
    {"two-level", broadcast, both, in_order, whole, equal, unlike, algorithms::two_level_broadcast},
    {"two-level", reduce, both, in_own_order, whole, equal, unlike, algorithms::two_level_reduce},
    {"two-level", gather, both, in_order, whole, equal, unlike, algorithms::two_level_gather},
    {"two-level", scatter, both, in_order, whole, equal, unlike, algorithms::two_level_scatter},
    {"two-level", all_to_all, both, in_order, whole, equal, alike,
     algorithms::two_level_all_to_all},
    {"leaders", all_reduce, both, in_own_order, whole, equal, unlike,
     algorithms::leaders_all_reduce},
    {"leaders", all_gather, both, in_order, whole, any, unlike, algorithms::leaders_all_gather},
    {"leaders", reduce_scatter, both, in_own_order, whole, any, unlike,
     algorithms::leaders_reduce_scatter},
    {"leaders", broadcast, both, in_order, whole, equal, unlike, algorithms::leaders_broadcast},
    {"leaders", reduce, both, in_own_order, whole, equal, unlike, algorithms::leaders_reduce},
    {"leaders", gather, both, in_order, whole, equal, unlike, algorithms::leaders_gather},
    {"leaders", scatter, both, in_order, whole, equal, unlike, algorithms::leaders_scatter},
    {"leaders", barrier, both, in_order, whole, equal, unlike, algorithms::leaders_barrier},
    {"message", send, messages, in_order, whole, equal, unlike, algorithms::message},
    {"message", recv, messages, in_order, whole, equal, unlike, algorithms::message},
};

/// The plan of a communicator of one rank: it copies the input to the output.
void lay_alone(Plan& plan, const Shape& shape) {
  const CollectiveRow& row = row_of(shape.collective);
  plan.single_chunk = true;
  if (row.input == Blocks::none) return;
  const steps::Ranges r(shape.rank);
  const Index block = steps::fixed(0);
  plan.lanes = {
      steps::one_block("copy", Buffer::input, block,
                       {row.reduces ? steps::finish(block, {r.input(block)}, {r.output(block)})
                                    : steps::copy(block, r.input(block), {r.output(block)})})};
}

}  // namespace

std::span<const Builder> builders() { return table; }

std::uint16_t number_of(const Builder& builder) {
  constexpr std::uint16_t loaded = 0x8000;
  static_assert(std::size(table) < loaded);
  if (builder.file != nullptr) {
    return narrowed<std::uint16_t>(loaded | (builder.file->hash % loaded));
  }
  HOCKET_ASSERT(std::begin(table) <= &builder && &builder < std::end(table),
                "a builder is a row of the table, or of a loaded plan");
  return narrowed<std::uint16_t>(&builder - table + 1);
}

Plan Builder::build(const Shape& shape) const {
  Plan plan;
  if (file != nullptr) {
    // The plans of all shapes were built once, to be verified: this cannot fail.
    [[maybe_unused]] const Status built = file->build(shape, &plan);
    HOCKET_ASSERT(built.ok(), "a loaded plan was built before");
    return plan;
  }
  plan.algorithm = algorithm;
  plan.shape = shape;
  plan.cut = cuts ? shape.ranks : 1;
  if (shape.ranks == 1 && !is_p2p(collective)) {
    lay_alone(plan, shape);
    return plan;
  }
  if (medium == Medium::node) {
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) plan.node.push_back(rank);
  } else if (medium == Medium::both) {
    plan.node = shape.layout->ranks_of(shape.layout->node_of(shape.rank));
  }
  build_lanes(plan, shape);
  return plan;
}

bool is_built_in(std::string_view name) {
  return std::ranges::any_of(table, [&](const Builder& b) { return b.is_named(name); });
}

const Builder* find_builder(const char* algorithm, Collective collective, Medium medium) {
  const auto it = std::ranges::find_if(table, [&](const Builder& b) {
    return b.is_named(algorithm) && b.collective == collective && b.medium == medium;
  });
  return it == std::end(table) ? nullptr : it;
}

}  // namespace hocket::internal
