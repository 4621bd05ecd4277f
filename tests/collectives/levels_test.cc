// Plans for several nodes: the verifier proves them for many layouts.
#include <gtest/gtest.h>

#include "collectives/verify/verify.h"
#include "plans.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

using Sizes = std::vector<std::uint32_t>;  // of the nodes

class EveryLayeredPlan : public ::testing::TestWithParam<Builder> {};

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const std::uint32_t size : sizes) text += (text.empty() ? "" : "+") + std::to_string(size);
  return text;
}

/// Nodes of equal size, and of all small uneven ones.
std::vector<Sizes> layouts() {
  std::vector<Sizes> found = {{2, 2}, {4, 4}, {3, 1}, {1, 3},    {1, 4, 2},   {2, 2, 2},
                              {8, 8}, {5, 3}, {2, 7}, {1, 1, 2}, {3, 3, 3, 3}};
  if (tests::sanitized) return found;
  for (const Sizes& more : {Sizes{4, 4, 4, 4, 4}, Sizes{12, 12}, Sizes{8, 8, 8, 7},
                            Sizes{1, 1, 1, 1, 1, 6}, Sizes{13, 2}}) {
    found.push_back(more);
  }
  for (std::uint32_t a = 1; a <= 5; ++a) {
    for (std::uint32_t b = 1; b <= 5; ++b) {
      for (std::uint32_t c = 0; c <= 3; ++c) {
        if (a + b + c == 2 || (a == 1 && b == 1 && c < 2)) continue;
        found.push_back(c == 0 ? Sizes{a, b} : Sizes{a, b, c});
      }
    }
  }
  return found;
}

TEST_P(EveryLayeredPlan, verifies_for_many_layouts) {
  const Builder& builder = GetParam();
  std::uint32_t number = 0;
  for (const Sizes& sizes : layouts()) {
    const Layout layout = layout_of(sizes);
    for (const bool varying : {false, true}) {
      if (varying && !builder.varying) continue;
      const std::uint32_t root = ++number % layout.ranks();
      const std::vector<Plan> plans = plans_of(builder, {.ranks = layout.ranks(),
                                                         .widened = number % 2 == 0,
                                                         .root = root,
                                                         .varying = varying,
                                                         .layout = &layout});
      const Proof proof = prove(plans);
      ASSERT_TRUE(proof.status.ok()) << text_of(sizes) << ": " << proof.status.message();
      ASSERT_TRUE(proof.scalars.ok()) << text_of(sizes) << ": " << proof.scalars.message();
      EXPECT_TRUE(proof.rank_order || !builder.rank_order) << text_of(sizes);
    }
  }
}

/// Ranks of a node need not follow one another: rank 0 and rank 2 are on one node, and so on.
TEST_P(EveryLayeredPlan, verifies_for_nodes_whose_ranks_do_not_follow_one_another) {
  const Builder& builder = GetParam();
  for (const std::vector<std::uint32_t>& node_of :
       {std::vector<std::uint32_t>{0, 1, 0, 1}, {7, 7, 3, 7, 3}, {2, 1, 0, 0, 1, 2, 2}}) {
    const Layout layout(node_of);
    for (std::uint32_t root = 0; root < layout.ranks(); ++root) {
      const std::vector<Plan> plans = plans_of(
          builder,
          {.ranks = layout.ranks(), .widened = root % 2 == 0, .root = root, .layout = &layout});
      const Status status = verify(plans);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryLayeredPlan, ::testing::ValuesIn(layout_builders()),
                         TestName());

TEST(Layouts, number_nodes_by_their_lowest_rank) {
  const std::uint32_t node_of[] = {9, 4, 9, 4, 0};
  const Layout layout(node_of);
  EXPECT_EQ(layout.ranks(), 5U);
  EXPECT_EQ(layout.nodes(), 3U);
  EXPECT_EQ(layout.node_of(3), 1U);
  EXPECT_EQ(layout.local_rank(2), 1U);
  EXPECT_EQ(layout.ranks_of(0), (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(layout.ranks_of(2), (std::vector<std::uint32_t>{4}));
  EXPECT_EQ(layout.ranks_of_largest(), 2U);
  EXPECT_EQ(layout.ranks_of_smallest(), 1U);
}

}  // namespace
}  // namespace hocket::internal
