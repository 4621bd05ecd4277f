#include "collectives/verify/verify.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "collectives/plan/steps.h"
#include "plans.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

using Plans = std::vector<Plan>;
using ItemCounts = std::vector<std::uint32_t>;  // of chunks, by item

class EveryPlan : public ::testing::TestWithParam<Builder> {};

/// Under a sanitizer a few of the 64 numbers of ranks do: all take the same ways through the code.
bool is_tried(std::uint32_t ranks) {
  return !tests::sanitized || ranks <= 9 || ranks == 17 || ranks == 33;
}

/// True if calls with blocks of different counts use the plans of calls with equal blocks. Then a
/// proof for the former holds for the latter: it only assumes less.
bool are_the_same_but_for_the_counts(Plans varying, const Plans& equal) {
  for (Plan& plan : varying) plan.shape.varying = false;
  return varying == equal;
}

TEST_P(EveryPlan, verifies_for_1_to_64_ranks) {
  const Builder& builder = GetParam();
  bool always_in_rank_order = true;
  for (std::uint32_t ranks = 1; ranks <= 64; ++ranks) {
    if (!is_tried(ranks)) continue;
    for (const bool varying : {false, true}) {
      if (varying && !builder.varying) continue;
      Group group = {
          .ranks = ranks, .widened = ranks % 2 == 0, .root = ranks / 3, .varying = varying};
      const Plans plans = plans_of(builder, group);
      group.varying = true;
      if (!varying && builder.varying && ranks > 16 &&
          are_the_same_but_for_the_counts(plans_of(builder, group), plans)) {
        continue;
      }
      const Proof proof = prove(plans);
      ASSERT_TRUE(proof.status.ok()) << ranks << " ranks: " << proof.status.message();
      ASSERT_GT(proof.steps_run + (ranks == 1), 0U);
      ASSERT_TRUE(proof.scalars.ok()) << ranks << " ranks: " << proof.scalars.message();
      always_in_rank_order &= proof.rank_order;
    }
  }
  EXPECT_EQ(always_in_rank_order, builder.rank_order);
}

TEST_P(EveryPlan, verifies_for_every_root_and_both_widths) {
  const Builder& builder = GetParam();
  for (const std::uint32_t ranks : {2, 3, 4, 5, 8, 13}) {
    if (tests::sanitized && ranks == 13) continue;
    const std::uint32_t roots = row_of(builder.collective).rooted ? ranks : 1;
    for (std::uint32_t root = 0; root < roots; ++root) {
      for (const bool widened : {false, true}) {
        Group group{.ranks = ranks, .widened = widened, .root = root};
        const Plans plans = plans_of(builder, group);
        group.shares_cores = true;
        const Plans shared = plans_of(builder, group);
        for (const Plans* each : {&plans, shared != plans ? &shared : nullptr}) {
          if (each == nullptr) continue;
          const Proof proof = prove(*each);
          for (const Status& status : {proof.status, proof.scalars}) {
            ASSERT_TRUE(status.ok())
                << ranks << " ranks, root " << root << ": " << status.message();
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlan, ::testing::ValuesIn(group_builders()), TestName());

TEST(Plans, send_and_recv_verify_together) {
  for (const std::uint32_t from : {0, 1}) {
    const Status status = verify(message_plans(from));
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Plans, run_with_the_numbers_of_chunks_that_are_asked_for) {
  const Builder& ring = *find_builder("ring", Collective::all_gather, Medium::messages);
  const Plans plans = plans_of(ring, {.ranks = 4, .varying = true});
  const auto steps = [&](std::vector<std::uint32_t> counts) {
    const Proof proof = prove(plans, {std::move(counts)});
    EXPECT_TRUE(proof.status.ok()) << proof.status.message();
    return proof.steps_run;
  };
  const std::uint64_t one = steps({1, 1, 1, 1}), two = steps({1, 2, 1, 1});
  EXPECT_GT(two, one);
  EXPECT_EQ(steps({1, 3, 1, 1}) - two, two - one);
  EXPECT_FALSE(prove(plans, {{1, 1, 1}}).status.ok());
  EXPECT_FALSE(prove(plans, {{1, 1, 0, 1}}).status.ok());
}

// Calls cut a message so that the last blocks are short, or give each rank a count of its own.
TEST(Plans, run_with_unequal_numbers_of_chunks_too) {
  const auto runs_more = [](const char* algorithm, Collective collective, bool varying) {
    const Plans plans = plans_of(*find_builder(algorithm, collective, Medium::messages),
                                 {.ranks = 4, .varying = varying});
    const std::uint32_t most = 2 * plans[0].slots + 1;
    std::vector<std::vector<std::uint32_t>> equal;
    for (const std::uint32_t chunks : {most, 1U, 2U}) equal.emplace_back(items(plans[0]), chunks);
    return prove(plans).steps_run > prove(plans, equal).steps_run;
  };
  EXPECT_TRUE(runs_more("ring", Collective::all_gather, true));
  EXPECT_TRUE(runs_more("pairs", Collective::all_to_all, true));
  EXPECT_TRUE(runs_more("ring", Collective::all_reduce, false));
  EXPECT_FALSE(runs_more("ring", Collective::all_gather, false));
}

// An instance starts when the instance `window` before it has ended, so both may use one block.
TEST(Plans, are_ordered_by_the_window_of_a_lane) {
  using namespace steps;
  Plans plans =
      plans_of(*find_builder("one-shot", Collective::all_gather, Medium::messages), {.ranks = 4});
  for (Plan& plan : plans) {
    plan.scratch_blocks = 1;
    Lane& receive = plan.lanes[0];
    const Range place = Ranges(plan.shape.rank).scratch(fixed(0)),
                output = receive.steps[0].dsts[0];
    receive.steps[0].dsts = {place};
    receive.steps.push_back(copy(receive.block, place, {output}));
    receive.window = 1;
  }
  EXPECT_TRUE(verify(plans).ok()) << verify(plans).message();
  plans[2].lanes[0].window = 2;
  const Status status = verify(plans);
  EXPECT_NE(status.message().find("scratch block 0 while rank 2, lane 'receive' instance"),
            std::string::npos)
      << status.message();
}

/// So many ranks that a proof takes at most about a second; with LONG_TESTS, at most a minute. In
/// plans that are not logarithmic the messages, or the blocks of each, grow with the ranks.
std::uint32_t many_ranks(const Builder& builder) {
  const bool is_long = std::getenv("LONG_TESTS") != nullptr;
  if (is_logarithmic(builder)) return 1024;
  // Its subtrees have four levels, of which the last one is not full.
  if (is_one_of(builder, {"pat"})) return is_long ? 256 : 203;
  if (is_one_of(builder, {"ring", "pairs", "owner-fold", "one-shot"})) return is_long ? 256 : 128;
  if (is_one_of(builder, {"bruck"})) return is_long ? 1024 : 256;
  if (is_one_of(builder, {"circulant"})) return is_long ? 512 : 128;
  return 0;
}

TEST(Plans, of_many_ranks_verify) {
  if (tests::sanitized) GTEST_SKIP() << "the sizes of the proof, not its ways through the code";
  for (const Builder& builder : group_builders()) {
    const std::uint32_t ranks = many_ranks(builder);
    if (ranks == 0) continue;
    const Status status = verify(plans_of(builder, {.ranks = ranks, .widened = true, .root = 5}));
    EXPECT_TRUE(status.ok()) << name_of(builder) << ": " << status.message();
  }
}

constexpr Medium node = Medium::node, messages = Medium::messages;

// One thing wrong, and the sentence that says so.
struct Fault {
  const char* name;
  const char* algorithm;
  Collective collective;
  Medium medium;
  std::function<void(Plans&)> break_it;
  const char* sentence;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

using enum Collective;

std::function<void(Plans&)> all(const std::function<void(Plan&)>& change) {
  return [change](Plans& plans) {
    for (Plan& plan : plans) change(plan);
  };
}

void erase_step(Lane& lane, std::size_t step) { lane.steps.erase(lane.steps.begin() + step); }

// Headers, nodes and arrivals.
std::vector<Fault> faults_of_headers() {
  using namespace steps;
  return {
      {"too_many_slots", "staged", all_gather, node, all([](Plan& p) { p.slots = 9; }),
       "'staged', rank 0, has 9 slots, not 1..8"},
      {"a_root_for_all", "ring", all_gather, messages, all([](Plan& p) { p.shape.root = 0; }),
       "has root 0, which is none of a all-gather of 4 ranks"},
      {"no_root", "tree", broadcast, messages, all([](Plan& p) { p.shape.root = 4; }),
       "has root 4, which is none of a broadcast"},
      {"cuts_a_gathered_message", "ring", all_gather, messages, all([](Plan& p) { p.cut = 4; }),
       "cuts a message of 4 blocks that all ranks see alike"},
      {"does_not_know_the_counts", "staged", all_to_all, node,
       all([](Plan& p) { p.shape.varying = true; }),
       "lays out memory that peers read by the longest block, which ranks do not know"},
      {"maps_without_a_node", "ring", all_gather, messages,
       all([](Plan& p) { p.maps_input = true; }), "maps buffers without a node"},
      {"a_line_without_a_node", "ring", all_gather, messages,
       all([](Plan& p) { p.line_blocks = 1; }), "has blocks in its line without a node"},
      {"a_node_out_of_order", "staged", all_gather, node,
       all([](Plan& p) { std::swap(p.node[0], p.node[1]); }),
       "has a node that is no ascending list of ranks"},
      {"a_node_of_others", "staged", all_gather, node,
       [](Plans& p) {
         for (std::size_t r = 0; r < 4; ++r) p[r].node = {0, 1, 2};
       },
       "'staged', rank 3, is no rank of its own node"},
      {"a_line_of_many_chunks", "inline", all_gather, node,
       all([](Plan& p) { p.single_chunk = false; }),
       "has blocks in its line, which only an unmapped single-chunk plan may have"},
      {"no_arrival", "inline", all_reduce, node, [](Plans& p) { erase_step(p[1].lanes[0], 1); },
       "'inline', rank 1, arrives 0 times"},
  };
}

std::vector<Fault> faults_of_arrivals() {
  using namespace steps;
  return {
      {"arrives_twice", "staged", all_gather, node,
       [](Plans& p) { p[1].lanes.push_back(once("again", {arrive()})); },
       "'staged', rank 1, arrives 2 times"},
      {"arrives_without_a_node", "ring", all_gather, messages,
       [](Plans& p) { p[1].lanes.push_back(once("arrive", {arrive()})); },
       "'ring', rank 1, arrives, but does not use the node"},
      {"awaits_the_board_in_a_lane", "staged", all_gather, node,
       [](Plans& p) { p[1].lanes.push_back(once("again", {await_board()})); },
       "belongs to the entry, which has it already"},
      {"arrives_in_each_chunk", "staged", all_gather, node,
       [](Plans& p) {
         p[2].arrives_first = false;
         p[2].lanes[0].steps.push_back(arrive());
       },
       "'staged', rank 2, arrives in lane 'stage', which has several chunks or instances"},
      {"too_few_plans", "ring", all_gather, messages, [](Plans& p) { p.pop_back(); },
       "is for 4 ranks, but there are 3 plans"},
      {"another_shape", "ring", all_gather, messages, [](Plans& p) { p[1].shape.widened = false; },
       "'ring', rank 1, is for another shape than rank 0's, or another rank"},
      {"another_cut", "ring", all_reduce, messages, [](Plans& p) { p[3].cut = 2; },
       "'ring', rank 3, cuts the message in other blocks than rank 0"},
  };
}

// Plans of ranks that do not fit together.
std::vector<Fault> faults_of_alikeness() {
  using namespace steps;
  return {
      {"other_scratch", "ring", all_reduce, messages, [](Plans& p) { ++p[2].scratch_blocks; },
       "'ring', rank 2, differs from rank 0's in its slots, scratch or line"},
      {"other_needs", "staged", all_gather, node, [](Plans& p) { p[2].maps_output = true; },
       "'staged', rank 2, differs from rank 0's in what it needs"},
      {"another_node", "staged", all_gather, node,
       [](Plans& p) {
         p[2].node = {2, 3};
       },
       "in its node"},
      {"wide_scratch_on_one_rank", "staged", all_gather, node,
       [](Plans& p) { p[2].wide_scratch = true; },
       "'staged', rank 2, differs from rank 0's in its slots, scratch or line"},
      {"a_wide_range_in_narrow_scratch", "staged", all_gather, node,
       [](Plans& p) { p[2].lanes[0].steps[1].dsts[0].wide = true; },
       "has a wide range, but the plan has no wide scratch"},
  };
}

std::vector<Fault> faults_of_lanes() {
  using namespace steps;
  return {
      {"no_steps", "ring", all_gather, messages, [](Plans& p) { p[1].lanes[0].steps.clear(); },
       "'ring', rank 1, lane 'copy' has no steps"},
      {"no_window", "ring", all_gather, messages, [](Plans& p) { p[1].lanes[0].window = 0; },
       "has a window of 0 instances"},
      {"too_many_instances", "ring", all_gather, messages,
       [](Plans& p) { p[1].lanes[0].instances = 2'000'000; },
       "has 2000000 instances; the most is 1048576"},
      {"extents_of_scratch", "ring", all_gather, messages,
       [](Plans& p) { p[1].lanes[0].extents = Buffer::scratch; },
       "has extents of neither the input nor the output"},
      {"extents_of_the_roots_input", "pairs", scatter, messages,
       [](Plans& p) {
         for (Plan& plan : p) plan.shape.varying = true;
         p[1].lanes[0].extents = Buffer::input;
       },
       "'pairs', rank 1, lane 'receive' has extents of a buffer that the rank does not have"},
      {"all_blocks_of_unknown_counts", "pairs", all_to_all, messages,
       [](Plans& p) {
         for (Plan& plan : p) plan.shape.varying = true;
         p[1].lanes[2].counts = Counts::all_blocks;
       },
       "lane 'copy' needs the counts of all blocks, which ranks do not know"},
      {"a_lane_of_no_block", "pairs", all_to_all, messages,
       [](Plans& p) { p[1].lanes[0].block.modulo = 0; }, "has block 4 of 4 in instance 2"},
      {"publishes_flag_4", "staged", all_gather, node,
       [](Plans& p) { p[1].lanes[0].publishes = 4; }, "lane 'stage' publishes flag 4 of 4"},
      {"publishes_without_a_node", "ring", all_gather, messages,
       [](Plans& p) { p[1].lanes[0].publishes = 0; },
       "publishes a flag, but the plan does not use the node"},
      {"publishes_instances", "staged", all_gather, node,
       [](Plans& p) { p[1].lanes[0].instances = 2; },
       "lane 'stage' instance 0 publishes a flag, but has not exactly one instance"},
      {"publishes_twice", "staged", all_gather, node,
       [](Plans& p) { p[1].lanes[2].publishes = p[1].lanes[0].publishes; },
       "lane 'collect' publishes flag 0, which lane 'stage' publishes too"},
  };
}

// Steps that no run could take.
std::vector<Fault> faults_of_steps() {
  using namespace steps;
  return {
      {"finishes_a_send", "one-shot", all_gather, messages,
       [](Plans& p) { p[0].lanes[1].steps[0].finish = true; }, "finishes without a fold"},
      {"awaits_nothing", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[2].steps[0].repeat = 0; },
       "lane 'fold', step 0 (await 1 send[j]{j<0}) is repeated 0 times"},
      {"folds_nothing", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[2].steps[2].srcs.clear(); }, "folds nothing"},
      {"data_in_a_lane_of_no_blocks", "one-shot", all_reduce, node,
       [](Plans& p) { p[0].lanes[0].counts = Counts::once; },
       "handles data in a lane that has no blocks"},
      {"sends_two_ranges", "one-shot", all_gather, messages,
       [](Plans& p) {
         p[0].lanes[1].steps[0].srcs.push_back(Range(p[0].lanes[1].steps[0].srcs[0]));
       },
       "does not send one range"},
      {"receives_and_sends", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[0].steps[1].srcs = p[0].lanes[0].steps[1].dsts; },
       "does not receive one range"},
      {"waits_for_a_range", "staged", all_gather, node,
       [](Plans& p) { p[0].lanes[0].steps[0].srcs = p[0].lanes[0].steps[1].srcs; },
       "synchronises, but names ranges"},
  };
}

std::vector<Fault> faults_of_single_steps() {
  using namespace steps;
  return {
      {"a_message_of_no_block", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[1].counts = Counts::once; },
       "handles data in a lane that has no blocks"},
      {"a_message_of_other_chunks", "owner-fold", all_reduce, messages,
       [](Plans& p) {
         const auto receives = [](const Lane& lane) { return lane.name == "receive result"; };
         Lane& lane = *std::ranges::find_if(p[0].lanes, receives);
         lane.counts = Counts::all_blocks;
         erase_step(lane, 0);  // it awaits a lane of one block
       },
       "has other chunks than"},
      {"an_empty_message_of_a_block", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[1].steps[0].srcs.clear(); },
       "is an empty message, but its lane does not run once"},
      {"awaits_no_lane", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[0].steps[0].lane = 3; }, "names lane 3 of 3"},
      {"waits_without_a_node", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[0].steps[0] = wait_all(0); }, "needs links within a node"},
      {"waits_for_flag_4", "staged", all_gather, node,
       [](Plans& p) { p[0].lanes[0].steps[0].flag = 4; }, "uses flag 4 of 4"},
      {"receives_twice_in_one_step", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[0].steps[1].dsts[0].repeat = 2; }, "repeats a range 2 times"},
      {"wide_for_no_reason", "tree", all_reduce, messages,
       all([](Plan& p) { p.shape.widened = false; }),
       "has wide scratch, but partial results are not wider than the data"},
      {"a_wide_output", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[2].steps[2].dsts[0].wide = true; },
       "has a wide range outside scratch"},
      {"writes_its_input", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[2].steps[2].dsts[0].buffer = Buffer::input; },
       "writes into an input"},
  };
}

// Steps that handle several blocks. In the reduce-scatter by circulant of 4 ranks, rank 0 has lanes
// `receive` and `send` of round 0, and of round 1, `done` and `fold`. Round 0 has two blocks.
std::vector<Fault> faults_of_several_blocks() {
  using namespace steps;
  return {
      {"a_message_of_several_blocks_from_the_input", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[0].lanes[1].steps[1].srcs[0].buffer = Buffer::input; },
       "is a message of several blocks outside scratch"},
      {"blocks_that_lie_apart", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[0].lanes[0].steps[1].dsts[0].block.by_source = -1; },
       "is a message of blocks that do not follow one another"},
      {"several_blocks_in_a_lane_of_one", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[0].steps[1].repeat = 2; },
       "handles several blocks in a lane of one block"},
      {"repeats_a_range_for_several_blocks", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[0].lanes[1].steps[0].srcs[0].repeat = 2; },
       "repeats a range for each of its blocks"},
      {"a_second_block_out_of_range", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[0].lanes[0].steps[1].block = by_source(3); }, "handles block 4 of 4"},
      {"a_second_place_out_of_range", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[0].lanes[0].steps[1].dsts[0].block.base = 5; }, "names block 6 of 6"},
      {"receives_fewer_blocks", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[2].lanes[0].steps[1].repeat = 1; },
       "receives 1 blocks, but rank 0 sends 2 with tag 0"},
      {"receives_another_second_block", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[2].lanes[0].steps[1].block.by_source = 2; },
       "receives, as block 1 of the message, another item than rank 0 sends with tag 0"},
      {"sends_a_second_block_that_nobody_wrote", "circulant", reduce_scatter, messages,
       [](Plans& p) { p[0].lanes[1].steps[0].repeat = 1; },
       "reads scratch block 2, where nothing has been written"},
      {"passes_on_to_the_output", "bruck", all_to_all, messages,
       [](Plans& p) { p[0].lanes[1].steps[1].block.base = 0; }, "which is item"},
      {"passes_on_another_block", "bruck", all_to_all, messages,
       [](Plans& p) {
         Step& copy = p[0].lanes[8].steps[0];
         copy.block = copy.srcs[0].block = fixed(3);
       },
       "for item 2, but it holds the input of rank 0 of item 3"},
  };
}

std::vector<Fault> faults_of_widths() {
  using namespace steps;
  return {
      {"writes_two_widths", "one-shot", all_reduce, messages, all([](Plan& p) {
         p.wide_scratch = true;
         p.lanes[2].steps[2].dsts.push_back(Ranges(p.shape.rank).scratch(fixed(0), true));
       }),
       "writes places of different width"},
      {"finishes_wide", "one-shot", all_reduce, messages, all([](Plan& p) {
         p.wide_scratch = true;
         p.lanes[2].steps[2].dsts = {Ranges(p.shape.rank).scratch(fixed(0), true)};
       }),
       "finishes into a wide place"},
      {"folds_narrow", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[2].steps[2].finish = false; },
       "rounds a partial result: its destination is not wide"},
  };
}

// Indices, and the chunks that a step waits for.
std::vector<Fault> faults_of_indices() {
  using namespace steps;
  return {
      {"sends_to_a_rank_out_of_range", "one-shot", all_reduce, messages,
       [](Plans& p) { p[1].lanes[1].steps[0].peer.modulo = 0; },
       "lane 'send' instance 2, step 0 (send in[0] -> 2+i tag 0) names rank 4 of 4"},
      {"sends_to_itself", "one-shot", all_reduce, messages,
       [](Plans& p) { p[1].lanes[1].steps[0].peer = fixed(1); },
       "names the rank itself as its peer"},
  };
}

std::vector<Fault> faults_of_peers() {
  using namespace steps;
  return {
      {"a_negative_tag", "one-shot", all_reduce, messages,
       [](Plans& p) { p[1].lanes[1].steps[0].tag = by_instance(0, -1); }, "has tag -1"},
      {"a_peer_out_of_the_node", "staged", broadcast, node,
       [](Plans& p) { p[1].lanes[0].steps[0].peer = fixed(4); }, "names local rank 4 of 4"},
      {"waits_for_itself", "staged", broadcast, node,
       [](Plans& p) { p[1].lanes[0].steps[0].peer = fixed(1); },
       "names the rank itself as its peer"},
      {"waits_for_a_flag_that_no_lane_publishes", "staged", all_gather, node,
       [](Plans& p) { p[1].lanes[0].publishes = -1; },
       "waits for a flag that rank 1 never publishes"},
      {"waits_for_other_chunks", "staged", all_gather, node,
       [](Plans& p) {
         p[1].lanes[0].counts = Counts::one_block;
         p[1].lanes[0].block = fixed(1);
         erase_step(p[1].lanes[0], 0);
       },
       "waits for lane 'stage' of rank 1, whose chunks are those of other blocks"},
      {"awaits_other_chunks", "one-shot", all_gather, messages,
       [](Plans& p) {
         p[0].lanes.push_back(one_block("late", Buffer::output, fixed(0), {await(0, fixed(0))}));
       },
       "awaits chunks of lane 'receive' instance 0, whose chunks are those of other blocks"},
  };
}

// Blocks and places.
std::vector<Fault> faults_of_ranges() {
  using namespace steps;
  return {
      {"handles_no_block", "staged", all_gather, node,
       [](Plans& p) { p[0].lanes[0].steps[1].block = fixed(4); }, "handles block 4 of 4"},
      {"handles_another_block_than_its_lane", "one-shot", all_gather, messages,
       [](Plans& p) { p[0].lanes[2].steps[0].block = fixed(1); },
       "handles block 1 in a lane of block 0"},
      {"names_no_local_rank", "one-shot", all_reduce, node,
       [](Plans& p) { p[0].lanes[0].steps[3].srcs[1].rank.base = 3; }, "names local rank 4 of 4"},
      {"touches_another_ranks_memory", "one-shot", all_gather, messages,
       [](Plans& p) { p[0].lanes[2].steps[0].srcs[0].rank = fixed(1); },
       "touches memory of rank 1 that it cannot reach"},
      {"names_no_block", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[2].steps[2].srcs[1].block.modulo = 0; }, "names block -2 of 3"},
      {"names_the_block_of_another_item", "direct", all_reduce, node,
       [](Plans& p) { p[0].lanes[0].steps[0].srcs[0].block = fixed(1); },
       "names block 1, which is item 1 of the message, for item 0"},
      {"reads_an_unmapped_input", "direct", all_reduce, node,
       all([](Plan& p) { p.maps_input = false; }), "touches memory of rank 1 that it cannot reach"},
      {"writes_a_peers_scratch", "one-shot", all_reduce, node,
       [](Plans& p) { p[0].lanes[0].steps[0].dsts[0].rank = fixed(1); },
       "writes into library memory of rank 1"},
      {"reads_an_input_that_only_the_root_has", "tree", broadcast, messages,
       [](Plans& p) {
         p[3].lanes.push_back(
             one_block("copy", Buffer::output, fixed(0),
                       {copy(fixed(0), Ranges(3).input(fixed(0)), {Ranges(3).output(fixed(0))})}));
       },
       "rank 3, lane 'copy', step 0 (copy in[0] -> out[0]) names block 0 of 0"},
  };
}

std::vector<Fault> faults_of_messages() {
  using namespace steps;
  return {
      {"uses_a_tag_twice", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[1].steps.push_back(Step(p[0].lanes[1].steps[0])); },
       "uses tag 0 between rank 0 and rank 1, which 'one-shot', rank 0, lane 'send' instance 0 "
       "uses too"},
      {"both_ends_use_a_tag_twice", "one-shot", all_gather, messages, all([](Plan& p) {
         for (const int lane : {0, 1}) p.lanes[lane].steps.push_back(Step(p.lanes[lane].steps[0]));
       }),
       "uses tag 0 between rank 0 and rank 1, which 'one-shot', rank 0, lane 'send' instance 0 "
       "uses too"},
      {"sends_what_nobody_receives", "one-shot", all_reduce, messages,
       [](Plans& p) { p[1].lanes[0].instances = 2; }, "sends tag 0, which rank 1 does not receive"},
      {"receives_what_nobody_sends", "one-shot", all_reduce, messages,
       [](Plans& p) { p[1].lanes[1].instances = 2; }, "receives tag 0, which rank 1 does not send"},
      {"receives_another_item", "one-shot", all_gather, messages,
       [](Plans& p) {
         p[1].lanes[1].block = p[1].lanes[1].steps[0].block = fixed(2);
         p[1].lanes[1].steps[0].srcs[0] = Ranges(1).output(fixed(2));
       },
       "receives item 1, but rank 1 sends item 2 with tag 0"},
      {"receives_nothing", "one-shot", all_reduce, messages,
       [](Plans& p) {
         p[1].lanes[0].counts = Counts::once;
         p[1].lanes[0].steps = {recv_empty(p[1].lanes[0].steps[1].peer, fixed(0))};
         p[1].lanes[2].steps = {await_end(0, fixed(0), 3)};
       },
       "receives nothing, but rank 0 sends item 0 with tag 0"},
  };
}

// Plans that do not end, or in which a necessary wait is missing.
std::vector<Fault> faults_of_order() {
  using namespace steps;
  return {
      {"reads_before_the_arrival", "inline", all_reduce, node,
       [](Plans& p) { erase_step(p[2].lanes[0], 2); },
       "reads line block 0 of rank 0 before it has awaited that rank's arrival"},
      {"reads_before_that_ranks_arrival", "one-shot", all_gather, node,
       [](Plans& p) { p[2].lanes[0].steps[3] = await_arrival(fixed(3)); },
       "reads scratch block 0 of rank 0 before it has awaited that rank's arrival"},
      {"arrives_before_its_data_is_there", "one-shot", all_reduce, node,
       [](Plans& p) { std::swap(p[0].lanes[0].steps[0], p[0].lanes[0].steps[1]); },
       "while rank 0, lane 'all' may be writing it: no step orders the two"},
      {"folds_without_waiting", "staged", all_reduce, node,
       [](Plans& p) { erase_step(p[1].lanes[1], 0); }, "rank 1, lane 'fold', step 1 (finish"},
      {"stages_over_what_a_peer_still_reads", "staged", all_reduce, node,
       [](Plans& p) { erase_step(p[3].lanes[0], 0); }, "no step orders the two"},
      {"a_lag_longer_than_the_slots", "staged", all_gather, node,
       [](Plans& p) { p[0].lanes[0].steps[0].lag = 5; }, "no step orders the two"},
      {"receives_over_what_it_folds", "one-shot", all_reduce, messages,
       [](Plans& p) { erase_step(p[0].lanes[0], 0); },
       "scratch block 2 while rank 0, lane 'fold' may be reading it: no step orders"},
  };
}

std::vector<Fault> faults_of_races() {
  using namespace steps;
  return {
      {"overwrites_what_it_sends", "one-shot", all_reduce, messages,
       [](Plans& p) { erase_step(p[0].lanes[2], 0); },
       "in place, writes output block 0 while rank 0, lane 'send' instance"},
      {"two_lanes_write_one_place", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes.push_back(Lane(p[0].lanes[2])); },
       "writes output block 0 while rank 0, lane 'fold' may be writing it"},
      {"returns_while_peers_access_its_buffers", "direct", all_reduce, node,
       [](Plans& p) { p[2].lanes.pop_back(); },
       "'direct', rank 2, returns while rank 0, lane 'fold' may still be reading its buffers"},
      {"writes_after_its_peer_may_have_returned", "direct", reduce, node,
       [](Plans& p) {
         p[0].lanes[2].steps = {wait(fixed(1), 3), wait(fixed(2), 3)};
         p[3].lanes[0].steps.insert(p[3].lanes[0].steps.begin(), await_end(3, fixed(0)));
         p[3].lanes.push_back(once("late", {wait(fixed(0), 2)}));
         p[0].lanes.push_back(
             publishing(once("said", {wait(fixed(1), 3), await_end(2, fixed(0))}), 2));
       },
       "which may have returned: no step orders the two"},
  };
}

std::vector<Fault> faults_of_progress() {
  using namespace steps;
  return {
      {"two_lanes_wait_for_one_another", "staged", all_reduce, node,
       [](Plans& p) { p[0].lanes[0].steps[0].lag = 0; }, "deadlock: nothing can go on past"},
      {"a_window_that_is_too_small", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[0].window = 2; }, "deadlock: nothing can go on past"},
      {"all_send_before_they_receive", "one-shot", all_gather, messages, all([](Plan& p) {
         p.lanes[0].steps.insert(p.lanes[0].steps.begin(), await_end(1, by_source(0), 3));
       }),
       "deadlock: nothing can go on past 'one-shot', rank 0, lane 'receive' instance 0, step 0"},
      {"a_rank_leaves_the_barrier_early", "tree", barrier, messages, all([](Plan& p) {
         for (Lane& lane : p.lanes) {
           std::erase_if(lane.steps, [](const Step& s) { return s.kind == StepKind::await; });
         }
       }),
       "leaves the barrier though rank"},
  };
}

// Plans with wrong results.
std::vector<Fault> faults_of_results() {
  using namespace steps;
  return {
      {"reads_what_nobody_wrote", "one-shot", all_reduce, node,
       [](Plans& p) { erase_step(p[0].lanes[0], 0); },
       "reads scratch block 0 of rank 0, where nothing has been written"},
      {"takes_a_block_for_another", "one-shot", all_gather, node,
       [](Plans& p) { p[0].lanes[0].steps[4].srcs[0].rank = fixed(3); },
       "scratch block 0 of rank 3 for item 1, but it holds the input of rank 3 of item 3, chunk 0"},
      {"reads_another_width", "tree", all_reduce, messages,
       [](Plans& p) {
         for (Lane& lane : p[2].lanes) {
           if (lane.name == "send up") lane.steps[1].srcs[0].wide = false;
         }
       },
       "receives wide elements, but rank 2 sends narrow ones"},
      {"reads_its_own_scratch_in_another_width", "tree", all_reduce, messages,
       [](Plans& p) {
         for (Lane& lane : p[2].lanes) {
           if (lane.name == "fold") lane.steps.back().srcs[1].wide = true;
         }
       },
       "as wide, but it holds narrow elements"},
      {"finishes_twice", "one-shot", all_reduce, messages,
       [](Plans& p) {
         const Ranges r(0);
         p[0].lanes[2].steps.push_back(
             finish(fixed(0), {r.output(fixed(0))}, {r.output(fixed(0))}));
       },
       "folds a result that is finished already"},
      {"copies_a_partial_result", "tree", all_reduce, messages,
       [](Plans& p) {
         const Ranges r(0);
         for (Lane& lane : p[0].lanes) {
           if (lane.name == "fold") {
             lane.steps.insert(lane.steps.end() - 1,
                               copy(fixed(0), r.scratch(fixed(1), true), {r.output(fixed(0))}));
           }
         }
       },
       "out of place, rounds a partial result"},
  };
}

std::vector<Fault> faults_of_answers() {
  using namespace steps;
  return {
      {"writes_a_place_twice", "one-shot", all_reduce, messages,
       [](Plans& p) { p[0].lanes[2].steps[2].dsts[0].repeat = 2; }, "writes a place twice"},
      {"folds_into_a_source_of_another_width", "tree", all_reduce, messages,
       [](Plans& p) {
         for (Lane& lane : p[2].lanes) {
           if (lane.name == "fold") lane.steps.back().dsts[0].block = fixed(0);
         }
       },
       "folds into a place that it reads, in another width"},
      {"forgets_a_rank", "one-shot", all_reduce, node,
       [](Plans& p) { p[0].lanes[0].steps[3].srcs.pop_back(); },
       "'one-shot', rank 0, ends, out of place, with the finished fold of ranks 0 of item 0"},
      {"folds_a_rank_twice", "one-shot", all_reduce, node,
       [](Plans& p) { p[0].lanes[0].steps[3].srcs[1].rank = fixed(2); },
       "with the finished fold of ranks 0, 2, 2, 2 of item 0, chunk 0 in output block 0, chunk 0"},
      {"finishes_what_it_only_gathers", "pairs", all_to_all, messages,
       [](Plans& p) { p[0].lanes[2].steps[0].finish = true; },
       "with the finished fold of ranks 0 of item 0, chunk 0 in output block 0, chunk 0"},
      {"writes_nothing", "one-shot", all_gather, messages, [](Plans& p) { p[0].lanes.pop_back(); },
       "'one-shot', rank 0, ends, out of place, with nothing in output block 0, chunk 0"},
  };
}

/// Plans that tell small blocks from large ones. The root is rank 0; the other ranks have the steps
/// put, arrive and send, the root awaits, takes and receives in lanes 1 to 3.
std::vector<Fault> faults_of_small_blocks() {
  return {
      {"small_blocks_of_half_a_line", "eager", gather, node,
       all([](Plan& p) { p.small_bytes = 100; }),
       "has small blocks of up to 100 bytes, which is no multiple of 64"},
      {"small_blocks_of_a_reduction", "one-shot", all_reduce, node,
       all([](Plan& p) { p.small_bytes = 64; }),
       "tells small blocks from large ones in a collective (all-reduce)"},
      {"small_blocks_with_chunks", "eager", gather, node,
       all([](Plan& p) { p.single_chunk = false; }),
       "tells small blocks from large ones, but cuts blocks, or is not for one node"},
      {"small_blocks_without_a_line", "eager", scatter, node,
       all([](Plan& p) { p.line_blocks = 1; }), "something else is in the arrival line"},
      {"other_small_blocks", "eager", all_to_all, node, [](Plans& p) { p[2].small_bytes = 64; },
       "'eager', rank 2, differs from rank 0's in what it needs"},
      {"a_condition_of_nothing", "one-shot", gather, node,
       [](Plans& p) { p[1].lanes[0].steps[0].when = When::small; },
       "has a condition, but the plan does not tell small blocks from large ones"},
      {"a_condition_to_arrive", "eager", gather, node,
       [](Plans& p) { p[1].lanes[0].steps[1].when = When::small; },
       "synchronises, but has a condition"},
      {"an_unknown_condition", "eager", gather, node,
       [](Plans& p) { p[1].lanes[0].steps[0].when = static_cast<When>(3); },
       "has an unknown condition"},
      {"large_blocks_in_scratch", "eager", gather, node,
       [](Plans& p) { p[1].lanes[0].steps[0].when = When::always; },
       "uses scratch, which has room for small blocks only, for other blocks too"},
      {"sends_small_blocks_too", "eager", gather, node,
       [](Plans& p) { p[1].lanes[0].steps[2].when = When::always; },
       "receives tag 0 for other blocks than rank 1 sends it"},
      {"receives_before_the_arrival", "eager", gather, node,
       [](Plans& p) {
         Steps& take = p[0].lanes[1].steps;
         std::rotate(take.begin(), take.begin() + 2, take.end());
       },
       "receives a block from rank 1 before it has awaited that rank's arrival"},
      {"leaves_small_blocks_out", "eager", gather, node,
       [](Plans& p) { erase_step(p[1].lanes[0], 0); },
       "reads scratch block 0 of rank 1, where nothing has been written"},
  };
}

std::vector<Fault> faults() {
  std::vector<Fault> all;
  for (const auto& more :
       {faults_of_headers(), faults_of_arrivals(), faults_of_alikeness(), faults_of_lanes(),
        faults_of_steps(), faults_of_single_steps(), faults_of_several_blocks(), faults_of_widths(),
        faults_of_indices(), faults_of_peers(), faults_of_ranges(), faults_of_messages(),
        faults_of_order(), faults_of_races(), faults_of_progress(), faults_of_results(),
        faults_of_answers(), faults_of_small_blocks()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

class EveryFault : public ::testing::TestWithParam<Fault> {};

TEST_P(EveryFault, is_named) {
  const Fault& fault = GetParam();
  const Builder& builder = *find_builder(fault.algorithm, fault.collective, fault.medium);
  Plans plans = plans_of(builder, {.ranks = 4, .widened = true});
  ASSERT_TRUE(verify(plans).ok()) << verify(plans).message();
  fault.break_it(plans);
  const Status status = verify(plans);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find(fault.sentence), std::string::npos) << status.message();
  EXPECT_FALSE(folds_in_rank_order(plans));
}

INSTANTIATE_TEST_SUITE_P(faults, EveryFault, ::testing::ValuesIn(faults()),
                         [](const auto& info) { return info.param.name; });

TEST(Faults, of_a_send_without_its_recv) {
  Plans plans = message_plans();
  plans[1].shape.collective = Collective::send;
  EXPECT_NE(verify(plans).message().find("is no partner for rank 0's send or recv"),
            std::string::npos);
  plans = message_plans();
  plans[0].shape.root = 0;
  EXPECT_NE(verify(plans).message().find("is no send or recv between two ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace hocket::internal
