// Executions of plans that tell small blocks from large ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "executor_world.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

using testing::Task;
using testing::World;

/// True if no rank has written to its scratches of that size.
bool scratch_is_untouched(const World& world, std::size_t ranks, ScratchSize size) {
  for (std::size_t r = 0; r < ranks; ++r) {
    const Board& board = world.board_of(r);
    const std::byte* const first = board.scratch(size, static_cast<int>(r), 0);
    const std::byte* const end = first + board.scratch_step(size);
    if (std::any_of(first, end, [](std::byte b) { return b != std::byte{0}; })) return false;
  }
  return true;
}

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

/// Where ranks share cores, a contributor of a gather ends when its block is in its large scratch;
/// else such a block is a message.
TEST(SmallBlocks, of_a_gather_fill_a_large_scratch_where_ranks_share_cores) {
  constexpr std::size_t large = (2 << 20) / sizeof(std::int32_t);
  for (const bool shares_cores : {true, false}) {
    const Group group{.ranks = 3, .varying = true, .shares_cores = shares_cores};
    const std::vector<Plan> plans =
        plans_of(*find_builder("eager", Collective::gather, Medium::node), group);
    EXPECT_EQ(plans[1].small_bytes, shares_cores ? 2U << 20 : 64U << 10);
    const Proof proof = prove(plans);
    EXPECT_TRUE(proof.status.ok()) << proof.status.message();
    World world(layout_of({group.ranks}));
    DrawnCall call;
    call.dtype = Dtype::int32;
    std::deque<Task> drawn;
    std::vector<Task*> tasks;
    for (; drawn.size() < 6; ++call.data_seed) {
      call.counts = {0, large, drawn.size() % 2 == 0 ? large - 1 : 20'000};
      tasks.push_back(&drawn.emplace_back(plans, std::vector<Plan>(), -1, call));
    }
    const Status status = world.run(tasks, 5);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const Task& task : drawn) ASSERT_EQ(task.buffers.check(), "");
    EXPECT_NE(scratch_is_untouched(world, group.ranks, ScratchSize::large), shares_cores);
  }
}

/// Successive operations use scratches of different sizes, of which there are 2 to 128. A rank that
/// is ahead must not write to one that a peer still reads.
TEST(SmallBlocks, of_different_sizes_follow_one_another_while_ranks_run_ahead) {
  static constexpr std::size_t counts[] = {0,   3,   25,   60,   128,  129,  500,
                                           512, 513, 1024, 1025, 2800, 9000, 16'385};
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::all_to_all}) {
    const Builder& builder = *find_builder("eager", collective, Medium::node);
    for (const std::uint32_t ranks : {2, 3, 5}) {
      const Group group{.ranks = ranks, .varying = true};
      const std::vector<Plan> plans = plans_of(builder, group);
      World world(layout_of({ranks}));
      std::mt19937_64 random(ranks);
      DrawnCall call;
      call.dtype = Dtype::int32;
      std::deque<Task> drawn;
      std::vector<Task*> tasks;
      for (; drawn.size() < (tests::sanitized ? 120 : 300); ++call.data_seed) {
        call.counts.clear();
        const std::size_t blocks = collective == Collective::all_to_all ? ranks * ranks : ranks;
        for (std::size_t b = 0; b < blocks; ++b) {
          call.counts.push_back(counts[random() % std::size(counts)]);
        }
        tasks.push_back(&drawn.emplace_back(plans, std::vector<Plan>(), -1, call));
      }
      const Status status = world.run(tasks, 11);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const Task& task : drawn) ASSERT_EQ(task.buffers.check(), "") << name_of(collective);
    }
  }
}

/// Makes three calls, of which the second and the third are prepared.
void expect_right(World& world, Collective collective, const Group& group, DrawnCall& call,
                  std::uint64_t seed) {
  const std::vector<Plan> plans = plans_of(*find_builder("eager", collective, Medium::node), group);
  std::deque<Task> tasks;
  for (int i = 0; i < 3; ++i, ++call.data_seed) {
    Task& task = tasks.emplace_back(plans, std::vector<Plan>(), -1, call);
    if (i > 0) task.repeats = &tasks.front();
    const Status status = world.run({&task}, seed);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(task.buffers.check(), "")
        << name_of(collective) << ", " << group.ranks << " ranks, call " << i << ", seed " << seed;
  }
}

/// The block of rank 0 is a message. If it were copied too, it would be in a large scratch.
TEST(SmallBlocks, are_in_scratch_while_a_large_block_is_a_message) {
  const Group group{.ranks = 3, .root = 2, .varying = true};
  World world(layout_of({group.ranks}));
  DrawnCall call;
  call.dtype = Dtype::int32;
  call.counts = {60'000, 100, 3};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_NO_FATAL_FAILURE(expect_right(world, Collective::gather, group, call, seed));
  }
  EXPECT_FALSE(scratch_is_untouched(world, group.ranks, ScratchSize::tiny));
  EXPECT_TRUE(scratch_is_untouched(world, group.ranks, ScratchSize::large));
}

struct Near {
  Collective collective;
  std::uint32_t ranks;
  std::size_t most;  // bytes of a block that lies in the arrival line
};

/// A gather has one count and one block in the line, which has 104 bytes for them. The other two
/// have a count for each rank and a block for each peer: with 13 ranks the counts need all of it.
constexpr Near near_blocks[] = {{Collective::gather, 2, 96},     {Collective::gather, 5, 96},
                                {Collective::gather, 13, 96},    {Collective::scatter, 2, 88},
                                {Collective::scatter, 3, 40},    {Collective::scatter, 5, 16},
                                {Collective::scatter, 9, 4},     {Collective::all_to_all, 2, 88},
                                {Collective::all_to_all, 3, 40}, {Collective::all_to_all, 5, 16},
                                {Collective::all_to_all, 9, 4}};

Group group_of(const Near& near) { return {.ranks = near.ranks, .varying = true}; }
std::size_t counts_of(const Near& near) {
  return near.collective == Collective::all_to_all ? near.ranks * near.ranks : near.ranks;
}

TEST(SmallBlocks, are_in_the_arrival_line_if_it_has_room_for_them) {
  for (const Near& near : near_blocks) {
    for (const std::size_t more : {0, 1}) {
      World world(layout_of({near.ranks}));
      DrawnCall call;
      call.dtype = Dtype::uint8;
      call.any_bits = true;
      call.counts.assign(counts_of(near), near.most + more);
      ASSERT_NO_FATAL_FAILURE(expect_right(world, near.collective, group_of(near), call, 1));
      EXPECT_EQ(scratch_is_untouched(world, near.ranks, ScratchSize::tiny), more == 0)
          << name_of(near.collective) << ", " << near.ranks << " ranks";
    }
  }
}

/// In one call some blocks are in lines, some in scratch, some are messages, and some are empty.
TEST(SmallBlocks, may_be_beside_others_in_scratch_and_messages) {
  for (const Near& near : near_blocks) {
    World world(layout_of({near.ranks}));
    std::mt19937_64 random(near.ranks);
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      DrawnCall call;
      call.dtype = Dtype::uint8;
      call.any_bits = true;
      const std::size_t counts[] = {0,   1,    near.most, near.most + 1, 60,   320,  321, 512,
                                    700, 2048, 2049,      4095,          4096, 4097, 9000};
      for (std::size_t b = 0; b < counts_of(near); ++b) {
        call.counts.push_back(counts[random() % std::size(counts)]);
      }
      ASSERT_NO_FATAL_FAILURE(expect_right(world, near.collective, group_of(near), call, seed));
    }
  }
}

/// A copy of a whole long block must not hold up the messages of other lanes.
TEST(LargeBlocks, are_copied_in_parts_between_which_other_lanes_take_their_turn) {
  constexpr std::size_t part = 256 << 10, parts = 5;
  const Group group{.ranks = 1, .varying = true};
  World world(layout_of({group.ranks}));
  DrawnCall call;
  call.dtype = Dtype::uint8;
  std::size_t moves[2] = {};
  for (const bool is_long : {false, true}) {
    call.counts = {is_long ? parts * part : part};
    const std::size_t before = world.moves();
    ASSERT_NO_FATAL_FAILURE(expect_right(world, Collective::gather, group, call, 1));
    moves[is_long] = world.moves() - before;
  }
  EXPECT_EQ(moves[true] - moves[false], 3 * (parts - 1)) << "expect_right() makes three calls";
}

/// Blocks that are copied in parts, messages, and small blocks in one call; with all kinds of
/// stores, which the seed decides.
TEST(LargeBlocks, may_be_beside_small_ones) {
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::all_to_all}) {
    const Group group{.ranks = 3, .root = 1, .varying = true};
    World world(layout_of({group.ranks}));
    DrawnCall call;
    call.dtype = Dtype::int16;
    const std::size_t counts[] = {600'000, 7, 131'072, 0, 131'073, 300'001};
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      call.counts.clear();
      const std::size_t blocks = collective == Collective::all_to_all ? 9 : 3;
      for (std::size_t b = 0; b < blocks; ++b) {
        call.counts.push_back(counts[(b + seed) % std::size(counts)]);
      }
      ASSERT_NO_FATAL_FAILURE(expect_right(world, collective, group, call, seed));
    }
  }
}

}  // namespace
}  // namespace hocket::internal
