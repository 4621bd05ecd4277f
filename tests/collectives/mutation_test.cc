// Tests the verifier with plans in which a random step is damaged. If the verifier accepts a
// damaged plan, the plan must still give the right result on data.
#include <gtest/gtest.h>

#include <functional>

#include "collectives/verify/verify.h"
#include "data.h"
#include "plans.h"

namespace hocket::internal {
namespace {

std::string picture(const std::vector<Plan>& plans) {
  std::string text;
  for (const Plan& plan : plans) text += print(plan);
  return text;
}

/// Removes, moves or changes a step; says what it did, or nothing if the draw does not fit it.
std::string damage_step(Steps& steps, std::size_t at, int ranks, std::mt19937_64& random) {
  Step& step = steps[at];
  switch (random() % 8) {
    case 0:
      steps.erase(steps.begin() + at);
      return "deleted";
    case 1:
      if (at + 1 == steps.size() || steps[at] == steps[at + 1]) return {};
      std::swap(steps[at], steps[at + 1]);
      return "swapped with the next";
    case 2:
      steps.insert(steps.begin() + at, Step(step));
      return "doubled";
    case 3:
      step.flag = step.flag == 0 ? 1 : step.flag - 1;
      return "of another flag";
    case 4:
      step.lag += 1;
      return "of a longer lag";
    case 5:
      if (step.lag == 0) return {};
      step.lag -= 1;
      return "of a shorter lag";
    case 6:
      step.peer = static_cast<std::int16_t>(random() % (ranks + 1)) - 1;
      return "with another peer";
    default:
      if (step.kind != StepKind::fold) return {};
      step.finish = !step.finish;
      return "finished or not";
  }
}

/// Changes or removes one range of a step; says what it did, or nothing if the draw does not fit.
std::string damage_range(Step& step, int ranks, std::mt19937_64& random) {
  std::vector<Range>& ranges =
      step.dsts.empty() || (!step.srcs.empty() && random() % 2 == 0) ? step.srcs : step.dsts;
  if (ranges.empty()) return {};
  const std::size_t at = random() % ranges.size();
  Range& range = ranges[at];
  switch (random() % 4) {
    case 0:
      range.block = range.block == 0 ? 1 : range.block - 1;
      return "on another block";
    case 1:
      range.rank = static_cast<std::int16_t>(random() % (ranks + 1)) - 1;
      return "in another rank's buffer";
    case 2:
      range.buffer = static_cast<Buffer>(random() % 4);
      return "in another buffer";
    default:
      if (ranges.size() < 2) return {};
      ranges.erase(ranges.begin() + at);
      return "without " + std::to_string(at);
  }
}

/// Damages one step of one rank's lanes or epilogue; says what it did, or nothing if the draw fits
/// no step.
std::string damage(std::vector<Plan>& plans, std::mt19937_64& random) {
  const int ranks = static_cast<int>(plans.size());
  Plan& plan = plans[random() % plans.size()];
  const std::size_t sections = plan.lanes.size() + (plan.epilogue.empty() ? 0 : 1);
  if (sections == 0) return {};
  const std::size_t section = random() % sections;
  Steps& steps = section < plan.lanes.size() ? plan.lanes[section] : plan.epilogue;
  if (steps.empty()) return {};
  const std::size_t at = random() % steps.size();
  const std::string before = print(steps[at]);
  // Eight ways to damage a step, four to damage a range: each as likely as any other.
  const std::string what = random() % 3 == 0 ? damage_range(steps[at], ranks, random)
                                             : damage_step(steps, at, ranks, random);
  if (what.empty()) return {};
  return "rank " + std::to_string(plan.shape.rank) + ", " + before + ": " + what;
}

/// Empty if the plans give the right bytes in every run.
std::string try_on_data(const std::vector<Plan>& plans, std::uint64_t seed) {
  const Plan& plan = plans[0];
  for (std::uint64_t run = 0; run < 6; ++run) {
    Interpretation of;
    of.dtype = Dtype::bfloat16;
    of.seed = 100 * seed + run;
    of.chunk_elements = plan.single_chunk ? 0 : 32;  // of 64 bytes
    // Chunks enough to come round to every slot twice; the last block is short.
    const bool per_rank = plan.shape.collective == Collective::all_gather ||
                          plan.shape.collective == Collective::reduce_scatter;
    of.count = plan.single_chunk ? 5 : 32 * (2 * plan.slots + 1) - 3;
    if (!per_rank && !plan.single_chunk) of.count *= plan.output_blocks;
    of.op = run % 3 == 2 ? Op::avg : Op::sum;
    RankBuffers buffers(plan.shape, of, run % 2 == 1, false);
    const Status status = interpret(plans, buffers.inputs, buffers.outputs, of);
    if (!status.ok()) return status.message();
    const std::string wrong = buffers.check();
    if (!wrong.empty()) return wrong;
  }
  return {};
}

class EveryPlanDamaged : public testing::TestWithParam<Builder> {};

TEST_P(EveryPlanDamaged, is_rejected_or_still_right) {
  const Builder& builder = GetParam();
  int damaged = 0, rejected = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 4);
    std::vector<Plan> plans = plans_of(builder, ranks, true, static_cast<int>(random() % ranks));
    const std::string healthy = picture(plans);
    const std::string what = damage(plans, random);
    if (what.empty() || picture(plans) == healthy) continue;
    ++damaged;
    const Status status = verify(plans);
    if (!status.ok()) {
      ++rejected;
      EXPECT_NE(status.message().find("rank"), std::string::npos) << status.message();
      continue;
    }
    EXPECT_EQ(try_on_data(plans, seed), "")
        << "seed " << seed << ", " << ranks << " ranks; the verifier let pass: " << what;
  }
  RecordProperty("damaged", damaged);
  RecordProperty("rejected", rejected);
  EXPECT_GT(damaged, 60);
  EXPECT_GT(rejected, damaged / 2) << "of " << damaged;
}

std::vector<Builder> builders_that_move_data() {
  std::vector<Builder> found = group_builders();
  std::erase_if(found, [](const Builder& b) { return b.collective == Collective::barrier; });
  return found;
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlanDamaged, testing::ValuesIn(builders_that_move_data()),
                         TestName());

// A barrier has no result that could be wrong. So the test checks its waits instead: for a
// power of two every message of the dissemination counts, and for any number every await.
TEST(DamagedBarrier, needs_every_message) {
  const Builder& tree = *find_builder("tree", Collective::barrier, false);
  for (int ranks : {2, 4, 8}) {
    const std::vector<Plan> healthy = plans_of(tree, ranks, false);
    for (int r = 0; r < ranks; ++r) {
      for (std::size_t lane = 0; lane < healthy[r].lanes.size(); ++lane) {
        for (const Step& step : healthy[r].lanes[lane]) {
          if (step.kind != StepKind::send) continue;
          std::vector<Plan> plans = healthy;
          const auto is_message = [](const Step& s) {
            return s.kind == StepKind::send || s.kind == StepKind::recv;
          };
          std::erase_if(plans[r].lanes[lane], is_message);
          std::erase_if(plans[step.peer].lanes[lane], is_message);
          EXPECT_FALSE(verify(plans).ok()) << ranks << " ranks, lane " << lane << " of rank " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hocket::internal
