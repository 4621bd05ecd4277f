// Executions of plans that tell small blocks from large ones.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "executor_world.h"

namespace hocket::internal {
namespace {

using testing::Task;
using testing::World;

/// Contributors of a gather and the root of a scatter wait for no peer. With small blocks such a
/// rank ends as many operations before its peers as there are tiny scratches.
TEST(SmallBlocks, let_a_rank_run_ahead_as_far_as_tiny_scratches_allow) {
  for (const Collective collective : {Collective::gather, Collective::scatter}) {
    const Builder& builder = *find_builder("eager", collective, Medium::node);
    const Group group{.ranks = 3, .varying = true};
    const std::vector<Plan> plans = plans_of(builder, group);
    World world(layout_of({group.ranks}));
    DrawnCall call;
    call.dtype = Dtype::int32;
    call.counts = {5, 64, 0};
    std::deque<Task> drawn;
    std::vector<Task*> tasks;
    for (; drawn.size() < 4 * testing::tiny_scratches; ++call.data_seed) {
      tasks.push_back(&drawn.emplace_back(plans, std::vector<Plan>(), -1, call));
    }
    std::size_t lead = 0;
    const Status status = world.run(tasks, 7, &lead);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const Task& task : drawn) ASSERT_EQ(task.buffers.check(), "");
    EXPECT_GE(lead, testing::tiny_scratches / 2) << name_of(collective);
  }
}

/// The block of rank 0 is longer than the tiny scratches of a rank: if it were copied there, it
/// would overwrite the block of rank 1. The second and the third call are prepared.
TEST(SmallBlocks, stay_in_scratch_while_a_peer_has_a_large_block) {
  const Group group{.ranks = 3, .root = 2, .varying = true};
  const std::vector<Plan> plans =
      plans_of(*find_builder("eager", Collective::gather, Medium::node), group);
  World world(layout_of({group.ranks}));
  DrawnCall call;
  call.dtype = Dtype::int32;
  call.counts = {Board::tiny_scratch_bytes * run_ahead_operations, 100, 3};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::deque<Task> tasks;
    for (int i = 0; i < 3; ++i, ++call.data_seed) {
      Task& task = tasks.emplace_back(plans, std::vector<Plan>(), -1, call);
      if (i > 0) task.repeats = &tasks.front();
      const Status status = world.run({&task}, seed);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(task.buffers.check(), "") << "seed " << seed << ", call " << i;
    }
  }
}

}  // namespace
}  // namespace hocket::internal
