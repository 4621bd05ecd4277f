// Plans of users. What is read is built for a few ranks; what is verified is written and read back
// as the same plans.
#include "collectives/plan/json.h"
#include "collectives/verify/verify.h"
#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

/// Larger plans take the verifier longer than fuzzing should.
bool is_small(const PlanFile& file, const std::vector<Plan>& plans) {
  std::size_t work = 0;
  for (const Plan& plan : plans) {
    for (const Lane& lane : plan.lanes) work += lane.steps.size() * std::max(1U, lane.instances);
  }
  return file.slots <= 4 && work <= 200;
}

/// The plans of all ranks, for each root in turn; empty: one cannot be built.
std::vector<Plan> build_all(const PlanFile& file, std::uint32_t ranks) {
  std::vector<Plan> plans;
  const auto& row = row_of(file.collective);
  const std::int32_t roots = row.rooted ? static_cast<std::int32_t>(ranks) : 1;
  for (std::int32_t root = 0; root < roots; ++root) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Shape shape{.collective = file.collective,
                        .rank = rank,
                        .ranks = ranks,
                        .root = row.rooted ? root : -1,
                        .widened = row.reduces};
      if (!file.build(shape, &plans.emplace_back()).ok()) return {};
    }
  }
  return plans;
}

FUZZ_TARGET(plan_json, input) {
  PlanFile file;
  const Status read = read_plan(input.text(), "fuzz", &file);
  if (!read.ok()) {
    FUZZ_CHECK(read.code() == Code::invalid_argument);
    FUZZ_CHECK(read.message().starts_with("fuzz: "));
    return;
  }
  if (file.medium == Medium::both) return;
  for (std::uint32_t ranks = 2; ranks <= 4; ++ranks) {
    if (!file.serves(ranks)) continue;
    const std::vector<Plan> plans = build_all(file, ranks);
    if (plans.empty() || !is_small(file, plans)) continue;
    bool sound = true;
    for (std::size_t first = 0; sound && first < plans.size(); first += ranks) {
      sound = verify(std::span(plans).subspan(first, ranks)).ok();
    }
    if (!sound) continue;
    PlanFile again;
    FUZZ_CHECK(read_plan(write_json(plans, file.varying), "again", &again).ok());
    FUZZ_CHECK(build_all(again, ranks) == plans);
  }
}

}  // namespace
}  // namespace hocket::internal
