// The verifier: deadlocks that need many chunks, and the order of folds.
#include <gtest/gtest.h>

#include "collectives/plan/steps.h"
#include "collectives/verify/verify.h"
#include "plans.h"

namespace hocket::internal {
namespace {

using Plans = std::vector<Plan>;
using ItemCounts = std::vector<std::uint32_t>;  // of chunks, by item

// The runs of the verifier have too few chunks to fill the slots of a window.
TEST(ManyChunks, let_a_ring_with_a_constant_window_deadlock) {
  const auto prove_with = [](std::uint32_t window, std::uint32_t chunks) {
    Plans plans =
        plans_of(*find_builder("ring", Collective::all_reduce, Medium::messages), {.ranks = 12});
    for (Plan& plan : plans) {
      for (Lane& lane : plan.lanes) {
        if (lane.name == "pass" || lane.name == "send on") lane.window = window;
      }
    }
    return prove(plans, {ItemCounts(12, chunks)}).status.message();
  };
  EXPECT_NE(prove_with(4, 12).find("deadlock: nothing can go on past"), std::string::npos);
  const std::string message = prove_with(4, 5);
  EXPECT_NE(message.find("deadlock with many chunks: 'ring', rank 0, lane 'send on' instance 4 "
                         "begins only when instance 0 has ended, which waits for it"),
            std::string::npos)
      << message;
  EXPECT_EQ(prove_with(5, 12), "success") << "all instances are active at the same time";
}

TEST(ManyChunks, let_an_await_of_an_end_deadlock) {
  using namespace steps;
  Plans plans = plans_of(*find_builder("owner-fold", Collective::reduce_scatter, Medium::messages),
                         {.ranks = 3});
  EXPECT_TRUE(prove(plans, {{2, 2, 2}}).status.ok());
  // Chunk 2 is received when chunk 0 is folded, but now nothing is folded before all chunks are
  // received. Two chunks fit into the slots.
  plans[1].lanes[2].steps[0] = await_end(1, by_source(0), 2);
  const Status status = prove(plans, {{2, 2, 2}}).status;
  EXPECT_NE(status.message().find("deadlock with many chunks: 'owner-fold', rank 1, lane 'fold', "
                                  "step 0 (await end of 1 receive[j]{j<2}) awaits the end of a "
                                  "lane that waits for this one"),
            std::string::npos)
      << status.message();
}

TEST(RankOrder, a_partial_result_may_only_come_first) {
  using namespace steps;
  const auto with = [](std::vector<std::uint32_t> order) {
    Plans plans =
        plans_of(*find_builder("one-shot", Collective::all_reduce, Medium::node), {.ranks = 3});
    for (Plan& plan : plans) {
      const Ranges r(plan.shape.rank);
      std::vector<Range> srcs;
      for (const std::uint32_t q : order) srcs.push_back(at(r.scratch(fixed(0)), fixed(q)));
      plan.scratch_blocks = 2;
      Steps& all = plan.lanes[0].steps;
      all.pop_back();
      const Range sum = r.scratch(fixed(1));
      all.push_back(fold(fixed(0), {srcs[0], srcs[1]}, sum));
      all.push_back(order[0] == 0 ? finish(fixed(0), {sum, srcs[2]}, {r.output(fixed(0))})
                                  : finish(fixed(0), {srcs[2], sum}, {r.output(fixed(0))}));
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
