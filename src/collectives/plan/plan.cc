#include "collectives/plan/plan.h"

#include <algorithm>
#include <map>

#include "collectives/plan/steps.h"

namespace hocket::internal {
namespace {

std::uint32_t blocks_of(const Plan& plan, Blocks blocks) {
  switch (blocks) {
    case Blocks::none:
      return 0;
    case Blocks::whole:
      return plan.cut;
    case Blocks::own:
      return 1;
    case Blocks::per_rank:
      return plan.shape.ranks;
  }
  return 0;
}

}  // namespace

Layout::Layout(std::span<const std::uint32_t> node_of) {
  std::map<std::uint32_t, std::uint32_t> numbers;
  for (std::uint32_t rank = 0; rank < node_of.size(); ++rank) {
    const auto [found, is_new] =
        numbers.emplace(node_of[rank], static_cast<std::uint32_t>(ranks_of_.size()));
    if (is_new) ranks_of_.emplace_back();
    std::vector<std::uint32_t>& ranks = ranks_of_[found->second];
    node_of_.push_back(found->second);
    local_rank_.push_back(static_cast<std::uint32_t>(ranks.size()));
    ranks.push_back(rank);
  }
  smallest_ = ranks();
  for (const std::vector<std::uint32_t>& ranks : ranks_of_) {
    largest_ = std::max(largest_, static_cast<std::uint32_t>(ranks.size()));
    smallest_ = std::min(smallest_, static_cast<std::uint32_t>(ranks.size()));
  }
}

Mapped mapped_buffers(const Plan& plan) {
  const CollectiveRow& row = row_of(plan.shape.collective);
  const bool of_all =
      (plan.maps_input && !row.input_at_root) || (plan.maps_output && !row.output_at_root);
  if (of_all) return Mapped::of_all;
  return plan.maps_input || plan.maps_output ? Mapped::of_root : Mapped::none;
}

bool waits_await_arrivals(const Plan& plan) {
  return plan.arrives_first && mapped_buffers(plan) != Mapped::of_all;
}

Steps entry_of(const Plan& plan) {
  Steps entry;
  if (!is_p2p(plan.shape.collective)) entry.push_back(steps::await_board());
  if (!plan.arrives_first) return entry;
  entry.push_back(steps::arrive());
  const Mapped mapped = mapped_buffers(plan);
  if (mapped == Mapped::of_all) entry.push_back(steps::await_arrival());
  const auto root = std::ranges::find(plan.node, static_cast<std::uint32_t>(plan.shape.root));
  if (mapped == Mapped::of_root && !plan.shape.is_root() && root != plan.node.end()) {
    entry.push_back(steps::await_arrival(steps::fixed(root - plan.node.begin())));
  }
  return entry;
}

std::uint32_t input_blocks(const Plan& plan) {
  return blocks_of(plan, row_of(plan.shape.collective).input);
}

std::uint32_t output_blocks(const Plan& plan) {
  return blocks_of(plan, row_of(plan.shape.collective).output);
}

bool has_input(const Shape& shape) { return has_input(row_of(shape.collective), shape.is_root()); }

bool has_output(const Shape& shape) {
  return has_output(row_of(shape.collective), shape.is_root());
}

std::uint64_t item_of(const Plan& plan, Buffer buffer, std::uint32_t block) {
  const CollectiveRow& row = row_of(plan.shape.collective);
  const bool of_input = buffer == Buffer::input;
  if (plan.shape.collective == Collective::all_to_all) {
    const std::uint64_t ranks = plan.shape.ranks;
    return of_input ? plan.shape.rank * ranks + block : block * ranks + plan.shape.rank;
  }
  return (of_input ? row.input : row.output) == Blocks::own ? plan.shape.rank : block;
}

std::uint64_t items(const Plan& plan) {
  const CollectiveRow& row = row_of(plan.shape.collective);
  const std::uint64_t ranks = plan.shape.ranks;
  if (plan.shape.collective == Collective::all_to_all) return ranks * ranks;
  if (row.input == Blocks::own || row.input == Blocks::per_rank) return ranks;
  return row.input == Blocks::none && row.output == Blocks::none ? 0 : plan.cut;
}

}  // namespace hocket::internal
