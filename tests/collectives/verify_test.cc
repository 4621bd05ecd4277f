#include "collectives/verify/verify.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <set>
#include <thread>

#include "collectives/plan/steps.h"
#include "plans.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

class EveryPlan : public testing::TestWithParam<Builder> {};

/// Under a sanitizer a few of the 64 numbers of ranks do: all take the same ways through the code.
bool is_tried(int ranks) { return !tests::sanitized || ranks <= 17 || ranks == 33 || ranks == 64; }

/// For 1 to 64 ranks; broadcasts from a rank in the middle.
std::array<Proof, 65> proofs_of(const Builder& builder, bool widened) {
  std::array<Proof, 65> proofs;
  std::atomic<int> next = 64;  // the long ones first
  const auto work = [&] {
    for (int ranks = next--; ranks >= 1; ranks = next--) {
      if (is_tried(ranks)) proofs[ranks] = prove(plans_of(builder, ranks, widened, ranks / 3));
    }
  };
  std::thread helper(work);
  work();
  helper.join();
  return proofs;
}

TEST_P(EveryPlan, verifies_for_1_to_64_ranks) {
  const Builder& builder = GetParam();
  const std::array<Proof, 65> proofs = proofs_of(builder, true);
  bool always_in_rank_order = true;
  for (int ranks = 1; ranks <= 64; ++ranks) {
    if (!is_tried(ranks)) continue;
    const Proof& proof = proofs[ranks];
    ASSERT_TRUE(proof.status.ok()) << ranks << " ranks: " << proof.status.message();
    ASSERT_GT(proof.steps_run + (ranks == 1), 0u);
    always_in_rank_order &= proof.rank_order;
  }
  EXPECT_EQ(always_in_rank_order, builder.rank_order);
}

TEST_P(EveryPlan, verifies_for_types_that_are_not_widened) {
  const std::array<Proof, 65> proofs = proofs_of(GetParam(), false);
  for (int ranks = 1; ranks <= 64; ++ranks) {
    if (!is_tried(ranks)) continue;
    const Status& status = proofs[ranks].status;
    ASSERT_TRUE(status.ok()) << ranks << " ranks: " << status.message();
  }
}

TEST_P(EveryPlan, is_the_same_copy_for_one_rank) {
  const Plan plan = plans_of(GetParam(), 1, false)[0];
  EXPECT_FALSE(plan.load_store);
  EXPECT_EQ(plan.scratch_blocks, 0u);
  EXPECT_TRUE(plan.prologue.empty() && plan.epilogue.empty());
  EXPECT_EQ(plan.lanes.size(), plan.shape.collective == Collective::barrier ? 0u : 1u);
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlan, testing::ValuesIn(group_builders()), TestName());

TEST(Plans, broadcasts_verify_for_every_root) {
  for (const Builder& builder : builders()) {
    if (builder.collective != Collective::broadcast) continue;
    for (int ranks : {2, 3, 4, 5, 8, 13}) {
      for (int root = 0; root < ranks; ++root) {
        const Status status = verify(plans_of(builder, ranks, true, root));
        ASSERT_TRUE(status.ok()) << builder.algorithm << ", " << ranks << " ranks, root " << root
                                 << ": " << status.message();
      }
    }
  }
}

TEST(Plans, send_and_recv_verify_together) {
  const Status status = verify(message_plans());
  EXPECT_TRUE(status.ok()) << status.message();
}

// The executor falls back from direct to staged after the prologue.
TEST(Plans, direct_and_staged_have_one_prologue) {
  for (const Builder& direct : builders()) {
    if (std::string(direct.algorithm) != "direct") continue;
    const Builder* staged = find_builder("staged", direct.collective, true);
    ASSERT_NE(staged, nullptr);
    for (int ranks : {2, 5}) {
      for (int r = 0; r < ranks; ++r) {
        const Plan mapped = plans_of(direct, ranks, false)[r];
        const Plan copied = plans_of(*staged, ranks, false)[r];
        EXPECT_EQ(mapped.prologue, copied.prologue);
        EXPECT_EQ(mapped.input_blocks, copied.input_blocks);
        EXPECT_EQ(mapped.output_blocks, copied.output_blocks);
      }
    }
  }
}

TEST(Plans, are_found_by_name_collective_and_links) {
  std::set<std::tuple<std::string, Collective, bool>> seen;
  for (const Builder& b : builders()) {
    EXPECT_EQ(find_builder(b.algorithm, b.collective, b.load_store)->lay, b.lay);
    EXPECT_TRUE(seen.insert({b.algorithm, b.collective, b.load_store}).second);
  }
  EXPECT_EQ(find_builder("ring", Collective::barrier, false), nullptr);
  EXPECT_EQ(find_builder("ring", Collective::all_reduce, true), nullptr);
  EXPECT_EQ(find_builder("Ring", Collective::all_reduce, false), nullptr);
}

// One thing wrong, and the sentence that says so.
struct Fault {
  const char* name;
  const char* algorithm;
  Collective collective;
  bool load_store;
  std::function<void(std::vector<Plan>&)> break_it;
  const char* sentence;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

void erase_step(Steps& steps, std::size_t i) { steps.erase(steps.begin() + i); }

// Load/store plans in which a necessary wait is missing.
std::vector<Fault> faults_of_order() {
  using namespace steps;
  constexpr auto all_reduce = Collective::all_reduce;
  constexpr auto all_gather = Collective::all_gather;
  return {
      {"no_arrival", "inline", all_reduce, true, [=](auto& p) { erase_step(p[1].lanes[0], 1); },
       "'inline', rank 1, arrives 0 times"},
      {"reads_a_line_before_the_arrival", "inline", all_reduce, true,
       [=](auto& p) { erase_step(p[2].lanes[0], 2); },
       "rank 2, lane 0, step 2 (finish line[0]@0 + line[0]@1 + line[0] + line[0]@3 -> out[0]) "
       "touches memory of rank 0 before awaiting its arrival"},
      {"arrives_before_its_data_is_there", "one-shot", all_reduce, true,
       [=](auto& p) { std::swap(p[0].lanes[0][0], p[0].lanes[0][1]); },
       "while rank 0, lane 0 may be writing it"},
      {"folds_without_waiting", "staged", all_reduce, true,
       [=](auto& p) { erase_step(p[1].lanes[1], 0); }, "no step orders the two"},
      {"stages_over_what_a_peer_still_reads", "staged", all_reduce, true,
       [=](auto& p) { erase_step(p[3].lanes[0], 0); },
       "of rank 3 while rank 3, lane 0 may be writing it: no step orders the two"},
      {"lag_larger_than_the_slots", "staged", all_gather, true,
       [=](auto& p) { p[0].lanes[0][0].lag = 5; },
       "while rank 0, lane 0 may be writing it: no step orders the two"},
      {"returns_while_a_peer_writes", "direct", all_reduce, true,
       [=](auto& p) { erase_step(p[2].epilogue, 1); },
       "'direct', rank 2 returns while rank 0, lane 0 may still be"},
      {"waits_for_a_flag_that_nobody_notifies", "staged", all_gather, true,
       [=](auto& p) { erase_step(p[1].lanes[0], 2); },
       "waits for a flag that rank 1 never notifies"},
      {"two_lanes_wait_for_one_another", "staged", all_reduce, true,
       [=](auto& p) { p[0].lanes[0][0].lag = 0; }, "deadlock: nothing can go on past"},
      {"a_rank_leaves_the_barrier_early", "tree", Collective::barrier, false,
       [=](auto& p) {
         for (Plan& plan : p) {
           for (Steps& lane : plan.lanes) {
             std::erase_if(lane, [](const Step& s) { return s.kind == StepKind::await; });
           }
         }
       },
       "leaves the barrier though rank"},
  };
}

// Sends and receives that do not fit together.
std::vector<Fault> faults_of_messages() {
  using namespace steps;
  constexpr auto all_reduce = Collective::all_reduce;
  constexpr auto all_gather = Collective::all_gather;
  return {
      {"a_ring_in_which_all_send_first", "ring", all_gather, false,
       [=](auto& p) {
         for (Plan& plan : p) {
           const int next = (plan.shape.rank + 1) % 4, last = (plan.shape.rank + 3) % 4;
           plan.lanes = {{copy(0, input(0), {output(plan.shape.rank)})}};
           for (int hop = 0; hop < 3; ++hop) {
             const int from = (plan.shape.rank + 4 - hop) % 4, got = (from + 3) % 4;
             plan.lanes[0].push_back(send(next, from, output(from)));
             plan.lanes[0].push_back(recv(last, got, output(got)));
           }
         }
       },
       "deadlock: nothing can go on past 'ring', rank 0, lane 0, step 1 (send out[0] -> 1)"},
      {"a_message_nobody_receives", "tree", all_reduce, false,
       [=](auto& p) { erase_step(p[0].lanes[0], 1); },
       "sends 1 messages per chunk to rank 0, which receives 0"},
      {"receives_over_what_it_still_sends", "owner-fold", all_reduce, false,
       [=](auto& p) {
         for (std::size_t lane = 7; lane < p[1].lanes.size(); ++lane) {
           if (p[1].lanes[lane][0].kind == StepKind::await &&
               p[1].lanes[lane][1].kind == StepKind::recv) {
             erase_step(p[1].lanes[lane], 0);
           }
         }
       },
       "in place, writes output block 0 while rank 1, lane"},
      {"sends_partials_narrow", "ring", all_reduce, false,
       [=](auto& p) {
         for (Plan& plan : p) {
           for (Steps& lane : plan.lanes) {
             for (Step& step : lane) {
               for (Range& r : step.dsts) r.wide = false;
               for (Range& r : step.srcs) r.wide = false;
             }
           }
         }
       },
       "rounds a partial result"},
  };
}

// Plans with wrong results, and plans that refer to missing blocks, buffers or ranks.
std::vector<Fault> faults_of_results_and_form() {
  using namespace steps;
  constexpr auto all_reduce = Collective::all_reduce;
  constexpr auto all_gather = Collective::all_gather;
  return {
      {"forgets_a_rank", "one-shot", all_reduce, true,
       [=](auto& p) { p[0].lanes[0][3].srcs.pop_back(); },
       "rank 0 ends, out of place, with the finished fold of ranks 0, 1, 2 of block 0, chunk 0"},
      {"finishes_twice", "tree", all_reduce, false,
       [=](auto& p) { p[0].lanes[2].push_back(finish(0, {output(0)}, {output(0)})); },
       "folds a result that is finished already"},
      {"never_finishes", "direct", all_reduce, true,
       [=](auto& p) { p[0].lanes[0][0].finish = false; }, "rounds a partial result"},
      {"copies_a_partial_into_the_output", "tree", all_reduce, false,
       [=](auto& p) {
         Steps& lane = p[0].lanes[2];
         lane.insert(lane.begin() + 2, copy(0, partial(1, true), {output(0)}));
       },
       ", out of place, rounds a partial result"},
      {"block_out_of_range", "direct", all_reduce, true,
       [=](auto& p) { p[0].lanes[0][0].srcs[1].block = 4; }, "names block 4 of 4"},
      {"flag_out_of_range", "staged", all_gather, true, [=](auto& p) { p[0].lanes[0][2].flag = 4; },
       "uses public flag 4 of 4"},
      {"too_many_slots", "staged", all_gather, true,
       [=](auto& p) {
         for (Plan& plan : p) plan.slots = 9;
       },
       "has 9 slots, not 1..8"},
      {"length_of_another_block", "ring", all_reduce, false,
       [=](auto& p) { p[1].lanes[0][0].dsts[0].length_block = 1; },
       "which holds block 2 of the message, for block 1"},
      {"writes_a_peers_scratch", "one-shot", all_reduce, true,
       [=](auto& p) { p[0].lanes[0].push_back(copy(0, input(0), {scratch(0, 1)})); },
       "writes into library memory of rank 1"},
      {"moves_data_in_the_prologue", "staged", all_gather, true,
       [=](auto& p) { p[0].prologue.push_back(copy(0, input(0), {output(0)})); },
       "stands in the prologue or epilogue"},
      {"arrives_twice", "staged", all_gather, true,
       [=](auto& p) { p[1].prologue.push_back(arrive()); }, "'staged', rank 1, arrives 2 times"},
      {"notifies_a_flag_twice", "staged", all_gather, true,
       [=](auto& p) { p[0].lanes[1].push_back(notify(0)); },
       "notifies a flag a second time in one chunk"},
      {"uses_a_flag_of_the_lanes_afterwards", "staged", all_gather, true,
       [=](auto& p) { p[0].epilogue.push_back(wait(0)); },
       "uses a public flag of another section of the plan"},
      {"folds_a_rank_twice", "one-shot", all_reduce, true,
       [=](auto& p) { p[0].lanes[0][3].srcs[2] = p[0].lanes[0][3].srcs[1]; },
       "rank 0 ends, out of place, with the finished fold of ranks 0, 1, 1, 3 of block 0"},
      {"ranks_with_different_scratch", "ring", all_reduce, false,
       [=](auto& p) { ++p[2].scratch_blocks; }, "differs from rank 0's"},
      {"ranks_with_different_slots", "ring", all_gather, false, [=](auto& p) { p[2].slots = 3; },
       "differs from rank 0's"},
      {"reads_an_ignored_input", "tree", Collective::broadcast, false,
       [=](auto& p) { p[3].lanes.push_back({copy(0, input(0), {output(0)})}); }, "rank 3"},
  };
}

std::vector<Fault> faults() {
  std::vector<Fault> all = faults_of_order();
  for (const auto& more : {faults_of_messages(), faults_of_results_and_form()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

class EveryFault : public testing::TestWithParam<Fault> {};

TEST_P(EveryFault, is_named) {
  const Fault& fault = GetParam();
  std::vector<Plan> plans =
      plans_of(*find_builder(fault.algorithm, fault.collective, fault.load_store), 4, true);
  ASSERT_TRUE(verify(plans).ok());
  fault.break_it(plans);
  const Status status = verify(plans);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find(fault.sentence), std::string::npos) << status.message();
  EXPECT_FALSE(folds_in_rank_order(plans));
}

INSTANTIATE_TEST_SUITE_P(faults, EveryFault, testing::ValuesIn(faults()),
                         [](const auto& info) { return info.param.name; });

TEST(RankOrder, a_partial_result_may_only_come_first) {
  using namespace steps;
  const auto with = [](std::vector<int> order) {
    std::vector<Plan> plans =
        plans_of(*find_builder("one-shot", Collective::all_reduce, true), 3, false);
    for (Plan& plan : plans) {
      std::vector<Range> srcs;
      for (int r : order) {
        srcs.push_back(r == plan.shape.rank ? input(0) : steps::scratch(0, r));
      }
      plan.scratch_blocks = 2;
      Steps& lane = plan.lanes[0];
      lane.pop_back();
      lane.push_back(fold(0, {srcs[0], srcs[1]}, steps::scratch(1)));
      lane.push_back(srcs.size() == 3 && order[0] == 0
                         ? finish(0, {steps::scratch(1), srcs[2]}, {output(0)})
                         : finish(0, {srcs[2], steps::scratch(1)}, {output(0)}));
    }
    EXPECT_TRUE(verify(plans).ok()) << verify(plans).message();
    return folds_in_rank_order(plans);
  };
  EXPECT_TRUE(with({0, 1, 2}));   // ((0 + 1) + 2)
  EXPECT_FALSE(with({1, 2, 0}));  // (0 + (1 + 2))
  EXPECT_FALSE(with({0, 2, 1}));  // ((0 + 2) + 1)
}

}  // namespace
}  // namespace hocket::internal
