#include "collectives/verify/interpret.h"

#include <gtest/gtest.h>

#include "data.h"
#include "plans.h"

namespace hocket::internal {
namespace {

bool fits(const Builder& builder, int ranks, const Interpretation& of) {
  if (std::string(builder.algorithm) != "inline" || ranks == 1) return true;
  const bool whole_input = builder.collective == Collective::reduce_scatter;
  return of.count * size_of(of.dtype) * (whole_input ? ranks : 1) <= line_payload_bytes;
}

class EveryPlanInterpreted : public testing::TestWithParam<Builder> {};

// Types, operators, counts and chunks are drawn; a failure prints the seed that draws them again.
TEST_P(EveryPlanInterpreted, gives_the_bytes_of_a_fold_in_rank_order) {
  const Builder& builder = GetParam();
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    static constexpr int rank_counts[] = {1, 2, 3, 4, 5, 7, 8, 13};
    static constexpr std::size_t counts[] = {0, 1, 2, 7, 16, 65, 129, 500, 1033};
    const int ranks = rank_counts[random() % std::size(rank_counts)];
    Interpretation of;
    of.count = counts[random() % std::size(counts)];
    of.dtype = static_cast<Dtype>(random() % dtype_count);
    of.op = static_cast<Op>(random() % op_count);
    of.chunk_elements = random() % 3 == 0 ? 0 : 1 + random() % 70;
    of.seed = seed;
    if (!fits(builder, ranks, of)) {
      of.count = line_payload_bytes / size_of(of.dtype) / ranks;
    }
    const bool in_place = random() % 2 == 0;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(ranks) + " ranks, " +
                 std::to_string(of.count) + " " + name_of(of.dtype) + ", " + name_of(of.op) +
                 (in_place ? ", in place" : ""));
    const std::vector<Plan> plans =
        plans_of(builder, ranks, is_widened(of.dtype), static_cast<int>(random() % ranks));
    RankBuffers buffers(plans[0].shape, of, in_place, builder.rank_order);
    const Status status = interpret(plans, buffers.inputs, buffers.outputs, of);
    ASSERT_TRUE(status.ok()) << status.message();
    if (builder.collective != Collective::barrier) {
      ASSERT_EQ(buffers.check(), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlanInterpreted, testing::ValuesIn(group_builders()),
                         TestName());

TEST(Interpret, carries_a_message_from_send_to_recv) {
  const std::int32_t sent[3] = {1, -2, 3};
  std::int32_t received[3] = {};
  const void* inputs[] = {sent, nullptr};
  void* outputs[] = {nullptr, received};
  const Status status =
      interpret(message_plans(), inputs, outputs, {.count = 3, .dtype = Dtype::int32});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(std::memcmp(sent, received, sizeof sent), 0);
}

TEST(Interpret, says_where_a_plan_deadlocks) {
  std::vector<Plan> plans =
      plans_of(*find_builder("inline", Collective::all_reduce, true), 2, false);
  plans[1].lanes[0].erase(plans[1].lanes[0].begin() + 1);  // never arrives
  const Interpretation of{.count = 1};
  RankBuffers buffers(plans[0].shape, of, false, false);
  const Status status = interpret(plans, buffers.inputs, buffers.outputs, of);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("deadlocks: rank 0, lane 0, chunk 0 waits at await arrival"),
            std::string::npos)
      << status.message();
}

TEST(Interpret, refuses_what_does_not_fit_a_line) {
  const std::vector<Plan> plans =
      plans_of(*find_builder("inline", Collective::all_reduce, true), 2, false);
  const Interpretation of{.count = 27};  // 108 bytes
  RankBuffers buffers(plans[0].shape, of, false, false);
  EXPECT_EQ(interpret(plans, buffers.inputs, buffers.outputs, of).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace hocket::internal
