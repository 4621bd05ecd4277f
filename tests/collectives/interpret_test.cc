#include "collectives/verify/interpret.h"

#include <gtest/gtest.h>

#include "collectives/plan/steps.h"
#include "data.h"
#include "plans.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

using namespace steps;

/// The largest block that a plan's lines can carry.
std::size_t most_in_line(const Builder& builder, std::uint32_t ranks, Dtype dtype) {
  const std::size_t blocks = row_of(builder.collective).input == Blocks::per_rank ? ranks : 1;
  return line_payload_bytes / size_of(dtype) / blocks;
}

struct Drawn {
  Group group;
  DrawnCall call;
};

/// Types, operators, roots, chunks and unequal blocks are drawn; the seed draws them again.
Drawn draw(const Builder& builder, std::uint32_t ranks, std::size_t count, bool varying,
           std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Drawn drawn;
  drawn.group = {.ranks = ranks, .varying = varying};
  const std::uint32_t roots[] = {0, ranks / 2, ranks - 1};
  drawn.group.root = roots[random() % 3];
  DrawnCall& call = drawn.call;
  call.dtype = static_cast<Dtype>(random() % dtype_count);
  call.op = draw_op(call.dtype, random);
  drawn.group.widened = tells_partial_results(call.dtype, call.op);
  call.chunk_elements = random() % 3 == 0 ? 0 : 1 + random() % 200;
  call.in_place = random() % 2 == 0;
  call.any_bits = builder.rank_order;
  call.seed = seed;
  if (std::string(builder.algorithm) == "inline" && ranks > 1) {
    count = std::min(count, most_in_line(builder, ranks, call.dtype));
  }
  call.count = count;
  if (varying) {
    const bool pairs = builder.collective == Collective::all_to_all;
    call.counts.resize(pairs ? std::size_t{ranks} * ranks : ranks);
    for (std::size_t& each : call.counts) {
      const std::size_t selections[] = {0, std::min<std::size_t>(1, count), count / 2, count};
      each = selections[random() % 4];
    }
  }
  return drawn;
}

std::string text_of(const Drawn& drawn) {
  const DrawnCall& call = drawn.call;
  std::string text = "seed " + std::to_string(call.seed) + ": " +
                     std::to_string(drawn.group.ranks) + " ranks, root " +
                     std::to_string(drawn.group.root) + ", " + std::to_string(call.count) + " " +
                     name_of(call.dtype) + ", " + name_of(call.op) + ", chunks of " +
                     std::to_string(call.chunk_elements) + (call.in_place ? ", in place" : "");
  for (const std::size_t count : call.counts) text += " " + std::to_string(count);
  return text;
}

void expect_right(const Builder& builder, const Drawn& drawn) {
  SCOPED_TRACE(text_of(drawn));
  const std::vector<Plan> plans = plans_of(builder, drawn.group);
  RankBuffers buffers(plans, drawn.call);
  const Status status =
      interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs, drawn.call.interpretation());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(buffers.check(), "");
}

class EveryPlanInterpreted : public ::testing::TestWithParam<Builder> {};
class EveryVaryingPlanInterpreted : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryPlanInterpreted, gives_the_bytes_that_the_collective_defines) {
  std::uint64_t seed = 0;
  for (const std::uint32_t ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (const std::size_t count : {0, 1, 7, 65, 300, 1000}) {
      for (int variant = 0; variant < (tests::sanitized ? 2 : 6); ++variant) {
        const bool varying = GetParam().varying && variant % 2 == 0;
        expect_right(GetParam(), draw(GetParam(), ranks, count, varying, ++seed));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Counts that no random draw is sure to have: empty blocks, blocks of one element, and one block
// that is longer than all others together, at every place.
TEST_P(EveryVaryingPlanInterpreted, serves_a_huge_block_among_empty_ones_and_ones) {
  const Builder& builder = GetParam();
  const bool pairs = builder.collective == Collective::all_to_all;
  const std::uint32_t ranks = 4;
  const std::size_t blocks = pairs ? std::size_t{ranks} * ranks : ranks;
  for (std::size_t longest = 0; longest < blocks; ++longest) {
    for (const bool in_place : {false, true}) {
      Drawn drawn = draw(builder, ranks, 1000, true, 1 + longest);
      DrawnCall& call = drawn.call;
      const std::size_t most = call.count;
      for (std::size_t b = 0; b < blocks; ++b) call.counts[b] = b % 2;
      call.counts[longest] = most;
      call.chunk_elements = 64;
      call.in_place = in_place;
      expect_right(builder, drawn);
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<Builder> varying_builders() {
  std::vector<Builder> found = group_builders();
  std::erase_if(found, [](const Builder& builder) { return !builder.varying; });
  return found;
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlanInterpreted, ::testing::ValuesIn(group_builders()),
                         TestName());
INSTANTIATE_TEST_SUITE_P(builders, EveryVaryingPlanInterpreted,
                         ::testing::ValuesIn(varying_builders()), TestName());

TEST(Interpret, carries_a_message_from_send_to_recv) {
  for (const std::uint32_t from : {0U, 1U}) {
    const std::vector<Plan> plans = message_plans(from);
    const DrawnCall call{
        .dtype = Dtype::int32, .count = 100, .chunk_elements = 16, .any_bits = true};
    RankBuffers buffers(plans, call);
    const Status status =
        interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs, call.interpretation());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(buffers.check(), "");
  }
}

/// Plans of two ranks that a test writes itself; rank 0 has the lanes `first`, rank 1 `second`.
std::vector<Plan> two_ranks(Collective collective, std::vector<Lane> first,
                            std::vector<Lane> second) {
  std::vector<Plan> plans(2);
  for (std::uint32_t r = 0; r < 2; ++r) {
    plans[r].shape = {.collective = collective, .rank = r, .ranks = 2};
    plans[r].lanes = r == 0 ? std::move(first) : std::move(second);
  }
  return plans;
}

/// Interprets plans of an operation without data.
Status interpret_empty(const std::vector<Plan>& plans, std::uint64_t seed = 1) {
  const DrawnCall call{.seed = seed};
  RankBuffers buffers(plans, call);
  return interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs, call.interpretation());
}

void expect_error(const Status& status, const std::string& words) {
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
}

// Instance i awaits the end of instance i + 1, so all three must be active at the same time.
TEST(Interpret, starts_no_instance_beyond_the_window) {
  const auto plans = [](std::uint32_t window) {
    const Lane lane = instances(once("down", {await_end(0, by_instance(1, 1))}), 3, window);
    return two_ranks(Collective::barrier, {lane}, {lane});
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_TRUE(interpret_empty(plans(3), seed).ok());
    const Status status = interpret_empty(plans(2), seed);
    expect_error(status, "the plan deadlocks: rank ");  // 0 or 1
    expect_error(status, ", lane 'down', instance 0, chunk 0 waits");
  }
}

TEST(Interpret, lets_no_step_await_instances_or_chunks_that_do_not_exist) {
  const std::vector<Lane> lanes = {
      once("a", {await(1, fixed(-1)), await_end(1, fixed(2), 3), await(1, fixed(0), 1)}),
      instances(once("b", {await_end(0, fixed(0))}), 2, 2)};
  const Status status = interpret_empty(two_ranks(Collective::barrier, lanes, lanes));
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Interpret, says_where_plans_deadlock) {
  expect_error(interpret_empty(two_ranks(Collective::barrier,
                                         {once("idle", {}), once("wait", {await_end(1, fixed(0))})},
                                         {once("idle", {})})),
               "deadlocks: rank 0, lane 'wait', instance 0, chunk 0 waits at await end of 1 wait");
}

TEST(Interpret, matches_messages_by_their_tags) {
  const auto meet = [](Index tag) {
    return interpret_empty(
        two_ranks(Collective::barrier,
                  {instances(once("send", {send_empty(fixed(1), by_instance(0, 1))}), 2, 2)},
                  {instances(once("receive", {recv_empty(fixed(0), tag)}), 2, 1)}));
  };
  EXPECT_TRUE(meet(by_instance(1, -1)).ok()) << "the last first";
  expect_error(meet(by_instance(1, 1)), "deadlocks");
}

TEST(Interpret, refuses_a_message_that_no_rank_receives) {
  bool left = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Status status = interpret_empty(
        two_ranks(Collective::barrier, {once("send", {send_empty(fixed(1), fixed(7))})}, {}), seed);
    ASSERT_FALSE(status.ok());
    const std::string words =
        "rank 1 does not receive the message of chunk 0 with tag 7 from rank 0";
    left = left || status.message().find(words) != std::string::npos;
  }
  EXPECT_TRUE(left) << "no send ended at once";
}

TEST(Interpret, refuses_what_does_not_fit_a_line) {
  const std::vector<Plan> plans =
      plans_of(*find_builder("inline", Collective::all_reduce, Medium::node), {.ranks = 2});
  for (const std::size_t count : {26, 27}) {  // 104 and 108 bytes
    const DrawnCall call{.count = count};
    RankBuffers buffers(plans, call);
    const Status status =
        interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs, call.interpretation());
    EXPECT_EQ(status.ok(), count == 26) << status.message();
  }
}

TEST(Interpret, refuses_ranges_outside_the_buffers_and_lengths_that_differ) {
  const Ranges r(0);
  const auto run = [](const Step& step, std::size_t count = 100) {
    std::vector<Plan> plans = two_ranks(
        Collective::all_gather, {one_block("lane", Buffer::output, step.block, {step})}, {});
    const std::size_t counts[] = {count, 50};
    const DrawnCall call{.counts = {counts[0], counts[1]}};
    RankBuffers buffers(plans, call);
    return interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs, call.interpretation());
  };
  const Index zero = fixed(0), one = fixed(1), two = fixed(2);
  EXPECT_TRUE(run(copy(zero, r.input(zero), {r.output(zero)})).ok());
  expect_error(run(copy(two, r.input(zero), {r.output(zero)})), "is for block 2");
  expect_error(run(copy(zero, r.input(one), {r.output(zero)})), "names block 1 of 1");
  expect_error(run(copy(zero, r.scratch(zero), {r.output(zero)})), "names block 0 of 0");
  expect_error(run(copy(zero, r.input(zero), {r.output(fixed(-1))})), "names block -1 of 2");
  expect_error(run(copy(zero, r.input(zero), {r.output(one)})), "handles 50 elements of 100");
  expect_error(run(copy(zero, at(r.input(zero), one), {r.output(zero)})), "names rank 1");
  expect_error(run(finish(zero, {}, {r.output(zero)})), "folds nothing");
  EXPECT_TRUE(run(copy(zero, r.input(zero), {r.output(one)}), 50).ok()) << "of equal length";
}

}  // namespace
}  // namespace hocket::internal
