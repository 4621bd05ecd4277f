#include "collectives/verify/verify.h"

#include "collectives/verify/verify_form.h"
#include "collectives/verify/verify_run.h"

namespace hocket::internal {

namespace {
constexpr std::size_t short_runs_up_to_ranks = 16;
}

Proof prove(std::span<const Plan> plans, std::vector<std::size_t> chunk_counts) {
  Proof proof;
  proof.status = verify_detail::check_form(plans);
  if (!proof.status.ok()) return proof;
  const Plan& plan = plans[0];
  if (plan.single_chunk) {
    chunk_counts = {1};
  } else if (chunk_counts.empty()) {
    chunk_counts = {2 * std::size_t{plan.slots} + 1};
    // A shorter run equals the beginning of a longer one. It is made too if that is cheap.
    if (plans.size() <= short_runs_up_to_ranks) chunk_counts.insert(chunk_counts.end(), {1, 2});
  }
  proof.rank_order = true;
  for (std::size_t chunks : chunk_counts) {
    verify_detail::Run run(plans, static_cast<std::uint32_t>(chunks));
    proof.status = run.run();
    proof.steps_run += run.steps_run();
    proof.rank_order &= proof.status.ok() && run.rank_order();
    if (!proof.status.ok()) break;
  }
  return proof;
}

Status verify(std::span<const Plan> plans) { return prove(plans).status; }

bool folds_in_rank_order(std::span<const Plan> plans) { return prove(plans).rank_order; }

}  // namespace hocket::internal
