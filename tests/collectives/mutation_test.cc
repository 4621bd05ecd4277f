// Tests the verifier with plans of which a random field is damaged. If the verifier accepts a
// damaged plan, the plan must still give the right result on data. If it accepts a damaged barrier,
// still no rank may end before all have begun.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/plan/steps.h"
#include "collectives/verify/verify.h"
#include "data.h"
#include "plans.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

using Random = std::mt19937_64;

std::string picture(const std::vector<Plan>& plans) {
  std::string text;
  for (const Plan& plan : plans) text += print(plan);
  return text;
}

/// Changes one number of an index by a little.
std::string damage_index(Index& index, Random& random) {
  switch (random() % 4) {
    case 0:
      index.base += random() % 2 == 0 ? 1 : -1;
      return "another base";
    case 1:
      index.by_instance += random() % 2 == 0 ? 1 : -1;
      return "another step by instance";
    case 2:
      index.by_source += random() % 2 == 0 ? 1 : -1;
      return "another step by source";
    default:
      index.modulo = index.modulo == 0 ? 2 + random() % 3 : index.modulo - 1;
      return "another modulo";
  }
}

/// Removes, moves or changes a step; says what it did, or nothing if the draw does not fit it.
std::string damage_step(Steps& steps, std::size_t at, Random& random) {
  Step& step = steps[at];
  switch (random() % 14) {
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
      return "its peer has " + damage_index(step.peer, random);
    case 7:
      return "its tag has " + damage_index(step.tag, random);
    case 8:
      return "its block has " + damage_index(step.block, random);
    case 9:
      return "its instance has " + damage_index(step.instance, random);
    case 10:
      step.repeat = step.repeat > 1 ? step.repeat - 1 : 2;
      return "repeated more or less often";
    case 11:
      step.lane = step.lane == 0 ? 1 : step.lane - 1;
      return "of another lane";
    case 12: {
      const auto when = static_cast<When>(random() % 3);
      if (std::exchange(step.when, when) == when) return {};
      return "for other blocks";
    }
    default:
      if (step.kind == StepKind::fold) {
        step.finish = !step.finish;
        return "finished or not";
      }
      if (step.kind == StepKind::await) {
        step.end = !step.end;
        return "awaits the end or not";
      }
      step.all = !step.all;
      return "of all or not";
  }
}

/// Changes or removes one range of a step; says what it did, or nothing if the draw does not fit.
std::string damage_range(Step& step, Random& random) {
  std::vector<Range>& ranges =
      step.dsts.empty() || (!step.srcs.empty() && random() % 2 == 0) ? step.srcs : step.dsts;
  if (ranges.empty()) return {};
  const std::size_t at = random() % ranges.size();
  Range& range = ranges[at];
  switch (random() % 6) {
    case 0:
      return "its range's block has " + damage_index(range.block, random);
    case 1:
      return "its range's rank has " + damage_index(range.rank, random);
    case 2:
      range.buffer = static_cast<Buffer>(random() % 4);
      return "in another buffer";
    case 3:
      range.wide = !range.wide;
      return "in another width";
    case 4:
      range.repeat = range.repeat > 1 ? range.repeat - 1 : 2;
      return "in more or fewer places";
    default:
      if (ranges.size() < 2) return {};
      ranges.erase(ranges.begin() + at);
      return "without " + std::to_string(at);
  }
}

std::string damage_lane(std::vector<Lane>& lanes, std::size_t at, Random& random) {
  Lane& lane = lanes[at];
  switch (random() % 7) {
    case 0:
      lanes.erase(lanes.begin() + at);
      return "deleted";
    case 1:
      lane.instances += random() % 2 == 0 ? 1 : -1;
      return "of other instances";
    case 2:
      lane.window = lane.window > 1 ? lane.window - 1 : 2;
      return "of another window";
    case 3:
      lane.publishes = static_cast<std::int16_t>(random() % 5) - 1;
      return "of another flag";
    case 4:
      return "its block has " + damage_index(lane.block, random);
    case 5:
      lane.counts = static_cast<Counts>(random() % 3);
      return "of other counts";
    default:
      lane.extents = lane.extents == Buffer::input ? Buffer::output : Buffer::input;
      return "of other extents";
  }
}

/// Damages one place of one rank's plan. Returns a description of the damage; empty if the random
/// numbers name a place that the plan does not have.
std::string damage(std::vector<Plan>& plans, Random& random) {
  Plan& plan = plans[random() % plans.size()];
  const std::string where = "rank " + std::to_string(plan.shape.rank) + ", ";
  if (random() % 20 == 0) {
    plan.arrives_first = !plan.arrives_first;
    return where + "arrives first or not";
  }
  if (plan.lanes.empty()) return {};
  const std::size_t at_lane = random() % plan.lanes.size();
  Steps& steps = plan.lanes[at_lane].steps;
  std::string before = "lane " + std::to_string(at_lane) + ", ";
  if (random() % 5 == 0) return where + before + damage_lane(plan.lanes, at_lane, random);
  if (steps.empty()) return {};
  const std::size_t at = random() % steps.size();
  before += print(plan, steps[at]) + ": ";
  const std::string what =
      random() % 3 == 0 ? damage_range(steps[at], random) : damage_step(steps, at, random);
  return what.empty() ? "" : where + before + what;
}

/// Empty if the plans give the right bytes in every run. scales: PreMulSum can use them.
std::string try_on_data(const std::vector<Plan>& plans, std::uint64_t seed, bool scales) {
  const Plan& plan = plans[0];
  constexpr std::size_t line = 32;  // elements of 64 bytes
  for (std::uint64_t run = 0; run < 6; ++run) {
    DrawnCall call;
    call.dtype = Dtype::bfloat16;
    call.seed = 100 * seed + run;
    call.op = run % 3 == 2 ? Op::avg : run % 3 == 1 && scales ? Op::pre_mul_sum : Op::sum;
    call.in_place = run % 2 == 1;
    call.chunk_elements = plan.single_chunk ? 0 : line;
    // Chunks enough to come round to every slot twice; the last block is short.
    call.count = plan.single_chunk ? 5 : line * (2 * plan.slots + 1) - 3;
    // Of 2 bytes each: blocks of all of these elements, and of two thirds of them, are large.
    if (plan.small_bytes > 0 && run < 3) call.count = plan.small_bytes;
    if (!plan.single_chunk) call.count *= plan.cut;
    if (plan.shape.varying) {
      const std::size_t number = items(plan);
      for (std::size_t i = 0; i < number; ++i) {
        call.counts.push_back((seed + run + 5 * i) % 4 * call.count / 3);
      }
    }
    RankBuffers buffers(plans, call);
    const Status status =
        interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs, call.interpretation());
    if (!status.ok()) return status.message();
    const std::string wrong = buffers.check();
    if (!wrong.empty()) return wrong;
  }
  return {};
}

/// A barrier whose ranks go as far as they can without one of them. It shares nothing with the
/// verifier. A step that can run can still run later, so the order of the steps does not matter.
class Barrier {
 public:
  /// held: the rank that never begins; -1: all begin.
  Barrier(const std::vector<Plan>& plans, int held) : plans_(plans), held_(held) {
    arrived_.resize(plans.size());
    for (const Plan& plan : plans) {
      std::vector<std::vector<std::size_t>>& lanes = at_.emplace_back();
      for (const Lane& lane : plan.lanes) lanes.emplace_back(lane.instances);
    }
    while (all_go_on()) {
    }
  }

  bool ended(std::size_t rank) const {
    for (std::uint32_t lane = 0; lane < plans_[rank].lanes.size(); ++lane) {
      for (std::uint32_t i = 0; i < plans_[rank].lanes[lane].instances; ++i) {
        if (!lane_ended(rank, lane, i)) return false;
      }
    }
    return static_cast<int>(rank) != held_;
  }

 private:
  bool all_go_on() {
    bool moved = false;
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      const Plan& plan = plans_[r];
      if (static_cast<int>(r) == held_) continue;
      if (plan.arrives_first && !arrived_[r]) moved = arrived_[r] = true;
      const auto goes_on = [&](const Step& step) {
        return step.kind != StepKind::await_arrival || run(plan, step, 0);
      };
      if (!std::ranges::all_of(entry_of(plan), goes_on)) continue;
      for (std::uint32_t lane = 0; lane < plan.lanes.size(); ++lane) {
        const std::uint32_t window = plan.lanes[lane].window;
        for (std::uint32_t i = 0; i < plan.lanes[lane].instances; ++i) {
          if (i >= window && !lane_ended(r, lane, i - window)) continue;
          std::size_t& at = at_[r][lane][i];
          for (; !lane_ended(r, lane, i) && run(plan, plan.lanes[lane].steps[at], i); ++at) {
            moved = true;
          }
        }
      }
    }
    return moved;
  }

  bool run(const Plan& plan, const Step& step, std::uint32_t i) {
    const std::uint32_t r = plan.shape.rank;
    switch (step.kind) {
      case StepKind::arrive:
        arrived_[r] = true;
        return true;
      case StepKind::await_arrival:
        return step.all ? all_arrived(plan) : bool(arrived_[local(plan, step.peer.at(i))]);
      case StepKind::wait:
        if (step.lag > 0) return true;  // a lane has one chunk: the one before it was never to come
        if (!step.all) return has_published(local(plan, step.peer.at(i)), step.flag);
        return std::ranges::all_of(plan.node, [&](std::uint32_t peer) {
          return peer == r || has_published(peer, step.flag);
        });
      case StepKind::await:
        for (std::uint32_t j = 0; j < step.repeat; ++j) {
          const std::int64_t instance = step.instance.at(i, j);
          if (instance < 0 || instance >= plan.lanes[step.lane].instances) continue;
          if (!step.end && step.lag > 0) continue;
          if (!lane_ended(r, step.lane, static_cast<std::uint32_t>(instance))) return false;
        }
        return true;
      case StepKind::send:  // ends at once: it says nothing of the receiver
        ++messages_[{r, step.peer.at(i), step.tag.at(i)}];
        return true;
      case StepKind::recv: {
        int& under_way = messages_[{step.peer.at(i), r, step.tag.at(i)}];
        return under_way > 0 && under_way-- > 0;
      }
      case StepKind::fold:
      case StepKind::await_board:
        break;
    }
    return true;
  }

  static std::uint32_t local(const Plan& plan, std::int64_t peer) {
    return plan.node[static_cast<std::size_t>(peer)];
  }
  /// All local peers.
  bool all_arrived(const Plan& plan) const {
    return std::ranges::all_of(
        plan.node, [&](std::uint32_t peer) { return peer == plan.shape.rank || arrived_[peer]; });
  }
  bool lane_ended(std::size_t rank, std::uint32_t lane, std::uint32_t i) const {
    return at_[rank][lane][i] == plans_[rank].lanes[lane].steps.size();
  }
  bool has_published(std::uint32_t rank, int flag) const {
    const std::vector<Lane>& lanes = plans_[rank].lanes;
    for (std::uint32_t lane = 0; lane < lanes.size(); ++lane) {
      if (lanes[lane].publishes == flag) return lane_ended(rank, lane, 0);
    }
    return false;
  }

  const std::vector<Plan>& plans_;
  const int held_;
  std::vector<bool> arrived_;
  std::vector<std::vector<std::vector<std::size_t>>> at_;  // by rank, lane, instance: its step
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> messages_;  // under way
};

/// Empty if all ranks end, and none of them before every rank has begun.
std::string try_barrier(const std::vector<Plan>& plans) {
  const auto ranks = static_cast<int>(plans.size());
  for (int held = -1; held < ranks; ++held) {
    const Barrier barrier(plans, held);
    for (int r = 0; r < ranks; ++r) {
      const bool ended = barrier.ended(static_cast<std::size_t>(r));
      if (held < 0 && !ended) return "rank " + std::to_string(r) + " never ends";
      if (held >= 0 && ended) {
        return "rank " + std::to_string(r) + " ends before rank " + std::to_string(held) +
               " has begun";
      }
    }
  }
  return {};
}

class EveryPlanDamaged : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryPlanDamaged, is_rejected_or_still_right) {
  const Builder& builder = GetParam();
  const bool moves_data = builder.collective != Collective::barrier;
  static const Layout layouts[] = {layout_of({2, 2}), layout_of({3, 1}), layout_of({1, 2}),
                                   layout_of({2, 1, 2})};
  int damaged = 0, rejected = 0;
  const std::uint64_t tried = (moves_data ? 400 : 4000) / (tests::sanitized ? 4 : 1);
  for (std::uint64_t seed = 1; seed <= tried; ++seed) {
    Random random(seed);
    Group group = {.ranks = 2 + static_cast<std::uint32_t>(random() % 4), .widened = true};
    if (builder.medium == Medium::both) {
      group.layout = &layouts[random() % std::size(layouts)];
      group.ranks = group.layout->ranks();
    }
    group.root = random() % group.ranks;
    group.varying = builder.varying && random() % 2 == 0;
    std::vector<Plan> plans = plans_of(builder, group);
    const std::string healthy = picture(plans);
    const std::string what = damage(plans, random);
    if (what.empty() || picture(plans) == healthy) continue;
    ++damaged;
    const Proof proof = prove(plans);
    if (!proof.status.ok()) {
      ++rejected;
      EXPECT_NE(proof.status.message().find("rank"), std::string::npos) << proof.status.message();
      continue;
    }
    EXPECT_EQ(moves_data ? try_on_data(plans, seed, proof.scalars.ok()) : try_barrier(plans), "")
        << "seed " << seed << ", " << group.ranks << " ranks, root " << group.root
        << (group.varying ? ", varying" : "") << "; the verifier let pass: " << what;
  }
  RecordProperty("damaged", damaged);
  RecordProperty("rejected", rejected);
  EXPECT_GT(damaged, tests::sanitized ? 20 : 60);
  EXPECT_GT(rejected, damaged / (tests::sanitized ? 3 : 2)) << "of " << damaged;
}

INSTANTIATE_TEST_SUITE_P(OfRanks, EveryPlanDamaged, ::testing::ValuesIn(group_builders()),
                         TestName());
INSTANTIATE_TEST_SUITE_P(OfNodes, EveryPlanDamaged, ::testing::ValuesIn(layout_builders()),
                         TestName());

// For a power of two every message of the dissemination counts.
TEST(DamagedBarrier, needs_every_message) {
  const Builder& tree = *find_builder("tree", Collective::barrier, Medium::messages);
  for (const std::uint32_t ranks : {2, 4, 8}) {
    const std::vector<Plan> healthy = plans_of(tree, {.ranks = ranks});
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (std::size_t lane = 0; lane < healthy[r].lanes.size(); lane += 2) {  // `send`
        const auto is_message = [](const Step& step) {
          return step.kind == StepKind::send || step.kind == StepKind::recv;
        };
        const Steps& steps = healthy[r].lanes[lane].steps;
        const auto send = std::ranges::find_if(steps, is_message);
        ASSERT_NE(send, steps.end());
        std::vector<Plan> plans = healthy;
        const Step nothing = steps::await_end(0, steps::fixed(-1));  // an instance that is none
        std::ranges::replace_if(plans[r].lanes[lane].steps, is_message, nothing);
        std::ranges::replace_if(plans[send->peer.at(0)].lanes[lane + 1].steps, is_message, nothing);
        const Status status = verify(plans);
        EXPECT_NE(status.message().find("leaves the barrier"), std::string::npos)
            << ranks << " ranks, lane " << lane << " of rank " << r << ": " << status.message();
        EXPECT_NE(try_barrier(plans).find("has begun"), std::string::npos) << try_barrier(plans);
      }
    }
  }
}

}  // namespace
}  // namespace hocket::internal
