#include "collectives/select/loaded_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mix.h"
#include "collectives/plan/program.h"
#include "collectives/verify/verify.h"

namespace hocket::internal {
namespace {

/// Where a buffer is not mapped, a built-in algorithm that maps none replaces this plan.
Status check_mapping(const PlanFile& file, const Plan& plan) {
  if (!plan.maps_input && !plan.maps_output) return {};
  Shape equal = plan.shape;
  equal.varying = false;  // some of these algorithms serve blocks of equal length only
  const bool replaced = std::ranges::any_of(builders(), [&](const Builder& builder) {
    return builder.collective == equal.collective && builder.medium == Medium::node &&
           replaces_mapping(builder.build(equal));
  });
  if (replaced) return {};
  return refused(file, "maps buffers in a collective without a buffer");
}

/// Proves the plans of all ranks for one shape, and lowers them. Clears the
/// flags of *builder for what these plans cannot do.
Status prove_shape(const PlanFile& file, Shape shape, Builder* builder) {
  std::vector<Plan> plans(shape.ranks);
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    HOCKET_RETURN_IF_ERROR(file.build(shape, &plans[shape.rank]));
  }
  std::string where = fmt::format("{} ranks", shape.ranks);
  if (shape.root >= 0) where += fmt::format(", root {}", shape.root);
  if (shape.varying) where += ", blocks of different counts";
  const Proof proof = prove(plans);
  if (!proof.status.ok()) {
    return refused(file, fmt::format("{} ({})", proof.status.message(), where));
  }
  HOCKET_RETURN_IF_ERROR(check_mapping(file, plans[0]));
  builder->rank_order &= proof.rank_order;
  builder->scales &= proof.scalars.ok();
  for (const Plan& plan : plans) {
    Program program;
    const Status lowered = lower(plan, &program);
    if (!lowered.ok()) return refused(file, lowered.message());
  }
  return {};
}

Status prove_all_shapes(const PlanFile& file, std::uint32_t ranks, const Layout* layout,
                        Builder* builder) {
  const CollectiveRow& row = row_of(file.collective);
  const auto roots = static_cast<std::int32_t>(row.rooted ? ranks : 1);
  for (std::int32_t root = 0; root < roots; ++root) {
    for (const bool varying : {false, true}) {
      for (const bool widened : {false, true}) {
        if ((varying && !file.varying) || (widened && !row.reduces)) continue;
        HOCKET_RETURN_IF_ERROR(prove_shape(file,
                                           {.collective = file.collective,
                                            .ranks = ranks,
                                            .root = row.rooted ? root : -1,
                                            .varying = varying,
                                            .widened = widened,
                                            .layout = layout},
                                           builder));
      }
    }
  }
  return {};
}

std::string is_loaded_already(const PlanFile& loaded, const PlanFile& file) {
  const std::string from = loaded.source == given_text ? "a text that was given before"
                                                       : loaded.source + " of HOCKET_PLAN_FILES";
  return fmt::format("a plan of this name, collective and links is loaded already, from {}{}", from,
                     loaded.hash == file.hash ? "" : ": give this plan another name");
}

/// Why a file does not serve these ranks.
std::string why_not(const PlanFile& file, std::uint32_t ranks, const Layout* layout) {
  if (file.medium != Medium::both) {
    return fmt::format("does not serve {} ranks: 'ranks' excludes that number, or it is not 2..{}",
                       ranks, most_ranks_of_file);
  }
  std::string nodes;
  for (std::uint32_t node = 0; layout != nullptr && node < layout->nodes(); ++node) {
    nodes += fmt::format("{}{}", node == 0 ? "" : "+", layout->ranks_of(node).size());
  }
  return fmt::format(
      "does not serve {} ranks on nodes of {}: 'ranks' or 'layout' excludes them (without 'layout' "
      "nodes are of equal size, and their ranks follow one another), there is one node, or the "
      "number of ranks is not 2..{}",
      ranks, nodes.empty() ? "unknown size" : nodes, most_ranks_of_file);
}

}  // namespace

Status LoadedPlans::verify(const PlanFile& file, std::uint32_t ranks,
                           std::shared_ptr<const LoadedPlan>* out, const Layout* layout) const {
  if (is_built_in(file.name)) {
    return refused(file, "has the name of a built-in algorithm: give it another name");
  }
  for (const auto& other : plans_) {
    if (other->file.name == file.name && other->file.collective == file.collective &&
        other->file.medium == file.medium) {
      return refused(file, is_loaded_already(other->file, file));
    }
  }
  if (!file.serves(ranks, layout)) return refused(file, why_not(file, ranks, layout));
  auto made = std::make_shared<LoadedPlan>();
  made->file = file;
  made->builder = {.algorithm = made->file.name.c_str(),
                   .collective = file.collective,
                   .medium = file.medium,
                   .rank_order = true,
                   .cuts = false,
                   .varying = file.varying,
                   .symmetric = false,
                   .build_lanes = nullptr,
                   .file = &made->file};
  HOCKET_RETURN_IF_ERROR(prove_all_shapes(made->file, ranks, layout, &made->builder));
  *out = std::move(made);
  return {};
}

std::uint64_t LoadedPlans::hash() const {
  std::uint64_t hash = 0;
  for (const auto& plan : plans_) hash = mix(hash + plan->file.hash);
  return hash;
}

std::string LoadedPlans::text() const {
  std::string text;
  for (const auto& plan : plans_) {
    text += (text.empty() ? "" : ", ") + name_and_hash(plan->file.name, plan->file.hash);
  }
  return text.empty() ? "none" : text;
}

std::string name_and_hash(const std::string& name, std::uint64_t hash) {
  return fmt::format("'{}' {:016x}", name, hash);
}

}  // namespace hocket::internal
