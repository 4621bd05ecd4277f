// Plans as JSON: what is written is read back, and what is wrong is refused by name.
#include "collectives/plan/json.h"

#include <gtest/gtest.h>

#include <string>

#include "collectives/verify/verify.h"
#include "plans.h"

namespace hocket::internal {
namespace {

/// The plans of all ranks, for all roots in turn.
std::vector<Plan> plans_for_all_roots(const Builder& builder, Group group) {
  const std::uint32_t roots = row_of(builder.collective).rooted ? group.ranks : 1;
  std::vector<Plan> all;
  for (group.root = 0; group.root < roots; ++group.root) {
    for (Plan& plan : plans_of(builder, group)) all.push_back(std::move(plan));
  }
  return all;
}

class EveryBuilder : public testing::TestWithParam<Builder> {};

TEST_P(EveryBuilder, is_written_as_json_and_read_back_as_the_same_plans) {
  const Builder& builder = GetParam();
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks) {
    SCOPED_TRACE(ranks);
    const std::string text = write_json(
        plans_for_all_roots(builder, {.ranks = ranks, .widened = true}), builder.varying);
    PlanFile file;
    const Status read = read_plan(text, "text", &file);
    ASSERT_TRUE(read.ok()) << read.message() << "\n" << text;
    EXPECT_TRUE(file.serves(ranks));
    EXPECT_FALSE(file.serves(ranks + 1));
    for (const bool widened : {false, true}) {
      for (const bool varying : {false, true}) {
        if (varying && !builder.varying) continue;
        for (const Plan& plan : plans_for_all_roots(
                 builder, {.ranks = ranks, .widened = widened, .varying = varying})) {
          Plan again;
          const Status built = file.build(plan.shape, &again);
          ASSERT_TRUE(built.ok()) << built.message() << "\n" << text;
          ASSERT_TRUE(plan == again) << print(plan) << "became\n" << print(again) << text;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryBuilder, testing::ValuesIn(group_builders()), TestName());

}  // namespace
}  // namespace hocket::internal
