// Is the verifier awake? Plans are damaged at random, one step at a time. Whatever damage it lets
// pass must make no difference when the plan is run on data.
#include <gtest/gtest.h>

#include <functional>

#include "collectives/verify.h"
#include "data.h"
#include "plans.h"

namespace hocket {
namespace {

std::string picture(const std::vector<Plan>& plans) {
  std::string text;
  for (const Plan& plan : plans) text += print(plan);
  return text;
}

/// Damages one step of one rank's lanes or epilogue; says what it did, or nothing if the draw fits
/// no step.
std::string damage(std::vector<Plan>& plans, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  Plan& plan = plans[below(plans.size())];
  const std::size_t section = below(plan.lanes.size() + (plan.epilogue.empty() ? 0 : 1));
  Steps& steps = section < plan.lanes.size() ? plan.lanes[section] : plan.epilogue;
  if (steps.empty()) return {};
  const std::size_t at = below(steps.size());
  Step& step = steps[at];
  const std::string before = print(step);
  std::vector<Range>& ranges =
      step.dsts.empty() || (!step.srcs.empty() && random() % 2 == 0) ? step.srcs : step.dsts;
  Range* range = ranges.empty() ? nullptr : &ranges[below(ranges.size())];
  const auto ranks = static_cast<std::int16_t>(plans.size());
  std::string what;
  switch (below(12)) {
    case 0:
      what = "deleted";
      steps.erase(steps.begin() + at);
      break;
    case 1:
      if (at + 1 == steps.size() || steps[at] == steps[at + 1]) return {};
      what = "swapped with the next";
      std::swap(steps[at], steps[at + 1]);
      break;
    case 2:
      what = "doubled";
      steps.insert(steps.begin() + at, Step(step));
      break;
    case 3:
      what = "of another flag";
      step.flag = step.flag == 0 ? 1 : step.flag - 1;
      break;
    case 4:
      what = "of another lag";
      step.lag += 1;
      break;
    case 5:
      if (step.lag == 0) return {};
      what = "of another lag";
      step.lag -= 1;
      break;
    case 6:
      what = "with another peer";
      step.peer = static_cast<std::int16_t>(below(ranks + 1)) - 1;
      break;
    case 7:
      if (range == nullptr) return {};
      what = "on another block";
      range->block = range->block == 0 ? 1 : range->block - 1;
      break;
    case 8:
      if (range == nullptr) return {};
      what = "in another rank's buffer";
      range->rank = static_cast<std::int16_t>(below(ranks + 1)) - 1;
      break;
    case 9:
      if (range == nullptr) return {};
      what = "in another buffer";
      range->buffer = static_cast<Buffer>(below(4));
      break;
    case 10:
      if (step.kind != StepKind::fold) return {};
      what = "finished or not";
      step.finish = !step.finish;
      break;
    case 11:
      if (range == nullptr || ranges.size() < 2) return {};
      what = "without " + std::to_string(range - ranges.data());
      ranges.erase(ranges.begin() + (range - ranges.data()));
      break;
  }
  return "rank " + std::to_string(plan.shape.rank) + ", " + before + ": " + what;
}

/// Empty where the plans give the right bytes in every run.
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
                         [](const auto& info) {
                           std::string name = name_of(info.param);
                           std::erase_if(name, [](char c) { return c == '-'; });
                           return name;
                         });

// A barrier moves nothing that could come out wrong, so here is what must not be missing: for a
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
}  // namespace hocket
