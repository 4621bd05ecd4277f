#include "collectives/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/verify_form.h"
#include "collectives/verify/verify_messages.h"
#include "collectives/verify/verify_progress.h"
#include "collectives/verify/verify_run.h"

namespace hocket::internal {

namespace {

using verify_detail::ChunkCounts;
using ItemCounts = std::vector<std::uint32_t>;  // of chunks, by item

constexpr std::size_t short_runs_up_to_ranks = 16;

/// The first `full` items have `most` chunks, the next one has `next`, the others have 1.
ItemCounts cut_counts(std::size_t items, std::size_t full, std::uint32_t most, std::uint32_t next) {
  ItemCounts counts(items, 1);
  std::fill_n(counts.begin(), full, most);
  if (full < items) counts[full] = next;
  return counts;
}

/// Unequal numbers of chunks, as far as calls can have them.
std::vector<ItemCounts> unequal_counts(const Plan& plan, std::uint32_t most) {
  const std::size_t number = items(plan);
  if (plan.cut > 1) {
    return {cut_counts(number, 1, most, 1), cut_counts(number, number / 2, most, 2),
            cut_counts(number, number - 1, most, most - 1)};
  }
  if (!plan.shape.varying || number < 2) return {};
  constexpr std::uint32_t pattern[] = {1, 3, 2, 5, 1, 4, 7};
  ItemCounts mixed(number), reversed(number), alone(number, 1);
  for (std::size_t i = 0; i < number; ++i) {
    mixed[i] = pattern[i % std::size(pattern)];
    reversed[i] = pattern[(number - i) * 3 % std::size(pattern)];
  }
  alone[number / 2] = most;
  return {mixed, reversed, alone};
}

std::vector<ItemCounts> default_runs(std::span<const Plan> plans) {
  const Plan& plan = plans[0];
  const std::size_t number = items(plan);
  const std::uint32_t most = 2 * std::uint32_t{plan.slots} + 1;
  std::vector<ItemCounts> runs = {ItemCounts(number, most)};
  if (number == 0 || plans.size() > short_runs_up_to_ranks) return runs;
  // A shorter run equals the beginning of a longer one. It is made too, because it is cheap.
  for (const std::uint32_t chunks : {1, 2}) runs.emplace_back(number, chunks);
  for (ItemCounts& counts : unequal_counts(plan, most)) runs.push_back(std::move(counts));
  return runs;
}

/// For each run the items that are small; one run without them in plans that do not tell small
/// blocks from large ones. All are small, none is, and mixtures of both. The two ends of a message
/// leave it out together, and a step that is left out waits for nothing: so a plan that ends with
/// large blocks ends with every mixture.
std::vector<std::vector<bool>> small_items(const Plan& plan) {
  const std::size_t number = items(plan);
  if (plan.small_bytes == 0) return {{}};
  std::vector<std::vector<bool>> runs = {std::vector<bool>(number, true),
                                         std::vector<bool>(number, false)};
  for (const std::size_t period : {2, 3, 5}) {
    std::vector<bool> some(number), others(number);
    for (std::size_t i = 0; i < number; ++i) {
      some[i] = i % period < (period + 1) / 2;
      others[i] = !some[i];
    }
    runs.push_back(std::move(some));
    runs.push_back(std::move(others));
  }
  return runs;
}

Status check_counts(const Plan& plan, const ItemCounts& counts) {
  if (counts.size() == items(plan) && std::ranges::count(counts, 0U) == 0) return {};
  return invalid_argument(fmt::format("a run of '{}' needs a number of chunks for each of {} items",
                                      plan.algorithm, items(plan)));
}

}  // namespace

Proof prove(std::span<const Plan> plans, std::vector<std::vector<std::uint32_t>> chunk_counts) {
  Proof proof;
  verify_detail::Messages messages;
  proof.status = verify_detail::check_form(plans);
  if (proof.status.ok()) proof.status = messages.match(plans);
  if (!proof.status.ok()) return proof;
  if (plans[0].single_chunk) {
    chunk_counts = {ItemCounts(items(plans[0]), 1)};
  } else if (chunk_counts.empty()) {
    chunk_counts = default_runs(plans);
  }
  proof.rank_order = true;
  for (const ItemCounts& counts : chunk_counts) {
    proof.status = check_counts(plans[0], counts);
    for (std::vector<bool>& small : small_items(plans[0])) {
      if (!proof.status.ok()) break;
      verify_detail::Run run(plans, messages, ChunkCounts(counts, std::move(small)));
      proof.status = run.run();
      proof.steps_run += run.steps_run();
      proof.rank_order &= run.rank_order();
      if (proof.scalars.ok()) proof.scalars = run.scalars();
    }
    if (!proof.status.ok()) break;
  }
  if (proof.status.ok() && !plans[0].single_chunk) {
    proof.status = verify_detail::check_progress(plans, messages);
  }
  proof.rank_order &= proof.status.ok();
  return proof;
}

Status verify(std::span<const Plan> plans) { return prove(plans).status; }

bool folds_in_rank_order(std::span<const Plan> plans) { return prove(plans).rank_order; }

}  // namespace hocket::internal
