// Compares the executor with the plain interpreter: every built-in plan, lowered, gives the same
// bytes. All ranks run in this thread, in an order that a seed repeats. Operations follow one
// another on the same board, so that bytes of earlier operations would show as errors.
#include "collectives/execute/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collectives/plan/steps.h"
#include "executor_world.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

using testing::Task;
using testing::World;

/// The counts of the blocks of a varying call.
std::vector<std::size_t> draw_counts(const Builder& builder, std::size_t ranks, std::size_t most,
                                     std::mt19937_64& random) {
  std::vector<std::size_t> counts(builder.collective == Collective::all_to_all ? ranks * ranks
                                                                               : ranks);
  for (std::size_t& count : counts) count = random() % 3 == 0 ? 0 : random() % (most + 1);
  return counts;
}

DrawnCall draw(const Builder& builder, std::size_t ranks, std::uint64_t seed, bool varying,
               std::mt19937_64& random) {
  static constexpr std::size_t sizes[] = {0, 1, 2, 7, 16, 65, 129, 500, 1033, 20'000};
  DrawnCall call;
  call.seed = seed;
  call.any_bits = true;
  call.dtype = static_cast<Dtype>(random() % dtype_count);
  call.op = draw_op(call.dtype, random);
  call.count = sizes[random() % std::size(sizes)];
  const std::size_t least_chunk = call.count > 2000 ? 600 : 1;  // else there would be very many
  call.chunk_elements = random() % 3 == 0 ? 0 : least_chunk + random() % 70;
  if (std::string(builder.algorithm) == "inline") {
    call.count = std::min(call.count, line_payload_bytes / size_of(call.dtype) / ranks);
  }
  call.in_place = builder.collective != Collective::all_to_all && random() % 2 == 0;
  if (varying) call.counts = draw_counts(builder, ranks, call.count, random);
  return call;
}

constexpr std::uint64_t drawn_calls = tests::sanitized ? 10 : 120;

class EveryProgram : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryProgram, does_what_the_plain_interpreter_does) {
  const Builder& builder = GetParam();
  std::map<std::uint32_t, std::unique_ptr<World>> worlds;
  for (std::uint64_t seed = 1; seed <= drawn_calls; ++seed) {
    std::mt19937_64 random(seed);
    static constexpr std::uint32_t rank_counts[] = {1, 2, 3, 4, 5, 8};
    Group group;
    group.ranks = rank_counts[random() % std::size(rank_counts)];
    group.root = static_cast<std::uint32_t>(random() % group.ranks);
    group.varying = builder.varying && random() % 2 == 0;
    DrawnCall call = draw(builder, group.ranks, seed, group.varying, random);
    group.widened = tells_partial_results(call.dtype, call.op);
    const int unmapped = random() % 3 == 0 ? static_cast<int>(random() % group.ranks) : -1;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(group.ranks) + " ranks, " +
                 std::to_string(call.count) + " " + internal::name_of(call.dtype) + ", " +
                 internal::name_of(call.op) + (call.in_place ? ", in place" : "") +
                 (group.varying ? ", varying" : ""));
    const std::vector<Plan> plans = plans_of(builder, group);
    std::vector<Plan> staged;
    if (plans[0].maps_input || plans[0].maps_output) {
      staged = plans_of(*find_builder("staged", builder.collective, Medium::node), group);
    }
    std::unique_ptr<World>& world = worlds[group.ranks];
    if (world == nullptr) world = std::make_unique<World>(layout_of({group.ranks}));
    // The second and the third call differ from the first in the data alone.
    const int calls = seed % 2 == 0 ? 1 : 3;
    const bool repeats = staged.empty() || unmapped < 0;
    std::deque<Task> tasks;
    for (int i = 0; i < calls; ++i, ++call.data_seed) {
      RankBuffers expected(plans, call);
      const Status plain = interpret(plans, expected.sizes, expected.inputs, expected.outputs,
                                     call.interpretation());
      ASSERT_TRUE(plain.ok()) << plain.message();
      Task& task = tasks.emplace_back(plans, staged, unmapped, call);
      if (i > 0 && repeats) task.repeats = &tasks.front();
      const Status status = world->run({&task}, seed);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(task.buffers.difference(expected), "") << "call " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryProgram, ::testing::ValuesIn(group_builders()), TestName());

class EveryLayeredProgram : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryLayeredProgram, does_what_the_plain_interpreter_does) {
  const Builder& builder = GetParam();
  static const Layout layouts[] = {layout_of({2, 2}), layout_of({3, 1}), layout_of({1, 4, 2}),
                                   layout_of({4, 4}),
                                   Layout(std::vector<std::uint32_t>{0, 1, 1, 0, 1})};
  std::map<const Layout*, std::unique_ptr<World>> worlds;
  for (std::uint64_t seed = 1; seed <= drawn_calls; ++seed) {
    std::mt19937_64 random(seed);
    Group group;
    group.layout = &layouts[random() % std::size(layouts)];
    group.ranks = group.layout->ranks();
    group.root = static_cast<std::uint32_t>(random() % group.ranks);
    group.varying = builder.varying && random() % 2 == 0;
    const DrawnCall call = draw(builder, group.ranks, seed, group.varying, random);
    group.widened = tells_partial_results(call.dtype, call.op);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(group.ranks) + " ranks, " +
                 std::to_string(call.count) + " " + internal::name_of(call.dtype) + ", " +
                 internal::name_of(call.op) + (call.in_place ? ", in place" : "") +
                 (group.varying ? ", varying" : ""));
    const std::vector<Plan> plans = plans_of(builder, group);
    RankBuffers expected(plans, call);
    const Status plain =
        interpret(plans, expected.sizes, expected.inputs, expected.outputs, call.interpretation());
    ASSERT_TRUE(plain.ok()) << plain.message();
    std::unique_ptr<World>& world = worlds[group.layout];
    if (world == nullptr) world = std::make_unique<World>(*group.layout);
    Task task(plans, {}, -1, call);
    const Status status = world->run({&task}, seed);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(task.buffers.difference(expected), "");
  }
}

/// A task of a drawn builder, and what all memory must hold after it.
struct DrawnTask {
  std::unique_ptr<Task> task;
  std::unique_ptr<RankBuffers> expected;
  std::string name;
};

/// Mostly one in which rank `ahead` waits for nobody.
DrawnTask draw_task(std::uint32_t ranks, std::uint32_t ahead, std::mt19937_64& random) {
  static const std::vector<Builder> all = group_builders();
  static const std::vector<Builder> rooted = [] {
    std::vector<Builder> found;
    for (const Builder& builder : all) {
      const std::string name = builder.algorithm;
      const bool once = name == "inline" || name == "one-shot" || name == "eager";
      if (once && builder.medium == Medium::node && row_of(builder.collective).rooted) {
        found.push_back(builder);
      }
    }
    return found;
  }();
  const bool is_rooted = random() % 16 != 0;
  const std::vector<Builder>& builders = is_rooted ? rooted : all;
  const Builder& builder = builders[random() % builders.size()];
  Group group;
  group.ranks = ranks;
  group.root = row_of(builder.collective).input_at_root ? ahead : (ahead + 1) % ranks;
  group.varying = builder.varying && random() % 2 == 0;
  DrawnCall call = draw(builder, ranks, random(), group.varying, random);
  // Mostly a small scratch, sometimes a medium or a large one.
  if (random() % 8 != 0)
    call.count = std::min<std::size_t>(call.count, random() % 4 == 0 ? 600 : 7);
  group.widened = tells_partial_results(call.dtype, call.op);
  const std::vector<Plan> plans = plans_of(builder, group);
  std::vector<Plan> staged;
  if (plans[0].maps_input || plans[0].maps_output) {
    staged = plans_of(*find_builder("staged", builder.collective, Medium::node), group);
  }
  const int unmapped = random() % 3 == 0 ? static_cast<int>(random() % ranks) : -1;
  DrawnTask drawn;
  drawn.expected = std::make_unique<RankBuffers>(plans, call);
  const Status plain = interpret(plans, drawn.expected->sizes, drawn.expected->inputs,
                                 drawn.expected->outputs, call.interpretation());
  EXPECT_TRUE(plain.ok()) << plain.message();
  drawn.task = std::make_unique<Task>(plans, staged, unmapped, call);
  drawn.name = std::string(internal::name_of(builder.collective)) + " by " + builder.algorithm;
  return drawn;
}

/// Any plans follow one another, and ranks are as far apart as they may be: no rank reads what a
/// rank ahead has written for a later operation.
TEST(RunAhead, lets_any_operations_follow_one_another) {
  std::size_t lead = 0;
  for (const std::uint32_t ranks : {2, 3, 5}) {
    World world(layout_of({ranks}));
    for (std::uint64_t seed = 1; seed <= drawn_calls; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(ranks) + " ranks");
      std::mt19937_64 random(seed);
      std::vector<DrawnTask> drawn;
      std::vector<Task*> tasks;
      const auto ahead = static_cast<std::uint32_t>(random() % ranks);
      while (drawn.size() < 2 * testing::tiny_scratches) {
        drawn.push_back(draw_task(ranks, ahead, random));
        tasks.push_back(drawn.back().task.get());
      }
      const Status status = world.run(tasks, seed, &lead);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const DrawnTask& one : drawn) {
        ASSERT_EQ(one.task->buffers.difference(*one.expected), "") << one.name;
      }
    }
  }
  EXPECT_GE(lead, testing::tiny_scratches) << "the ranks ran in step: this shows nothing";
}

INSTANTIATE_TEST_SUITE_P(builders, EveryLayeredProgram, ::testing::ValuesIn(layout_builders()),
                         TestName());

TEST(Programs, of_send_and_recv_do_what_the_plain_interpreter_does) {
  World world(layout_of({2}));
  for (const std::size_t count : {0, 1, 27, 70'000}) {
    const std::vector<Plan> plans = message_plans();
    DrawnCall call;
    call.dtype = Dtype::int32;
    call.count = count;
    call.any_bits = true;
    Task task(plans, {}, -1, call);
    const Status status = world.run({&task}, 1);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(task.buffers.check(), "");
  }
}

// A program of one rank, whose lane 0 awaits the end of lane 1. Each block has three chunks.
TEST(Programs, give_turns_after_each_chunk_and_await_the_end_of_a_lane) {
  using namespace steps;
  const Ranges r(0);
  Plan plan;
  plan.shape = {.collective = Collective::all_reduce};
  plan.cut = 2;
  plan.lanes = {
      one_block("second", Buffer::input, fixed(1),
                {await_end(1, fixed(0)), copy(fixed(1), r.input(fixed(1)), {r.output(fixed(1))})}),
      one_block("first", Buffer::input, fixed(0),
                {copy(fixed(0), r.input(fixed(0)), {r.output(fixed(0))})})};
  Program program;
  ASSERT_TRUE(lower(plan, &program).ok());
  constexpr std::size_t chunk = 64, size = 6 * chunk;
  const std::vector<std::byte> input(size, std::byte{7});
  std::vector<std::byte> output(size);
  Binding binding;
  binding.input = input.data();
  binding.output = output.data();
  binding.sizes = sizes_of(plan, size, Dtype::int8, chunk);
  const testing::NodeMemory memory(1);
  const Board board(memory.base(), 1, 0);
  Links links;
  links.ranks_of_node = {0};
  RunAhead run_ahead(board, 0, links.ranks_of_node);
  links.board = &board;
  links.run_ahead = &run_ahead;
  binding.message_sequence = 1;
  Execution execution;
  execution.start(program, nullptr, binding, links);
  const auto copied = [&] { return std::ranges::count(output, std::byte{7}); };
  for (std::size_t chunks = 1; chunks <= 3; ++chunks) {
    EXPECT_TRUE(execution.advance());
    EXPECT_EQ(copied(), chunks * chunk) << "lane 1 goes on by a chunk, lane 0 waits";
    EXPECT_FALSE(execution.done());
  }
  for (std::size_t chunks = 4; chunks <= 6; ++chunks) {
    EXPECT_TRUE(execution.advance());
    EXPECT_EQ(copied(), chunks * chunk);
  }
  EXPECT_TRUE(execution.done());
}

}  // namespace
}  // namespace hocket::internal
