// What the plans over messages promise for many ranks, beyond the numbers that the interpreter and
// the verifier run.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "collectives/plan/program.h"
#include "plans.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal {
namespace {

constexpr std::uint32_t many_ranks = 65536;
constexpr std::uint32_t some_ranks[] = {0, 1, 32767, 32768, many_ranks - 1};

Plan plan_of(const Builder& builder, std::uint32_t rank, std::uint32_t ranks) {
  const bool rooted = row_of(builder.collective).rooted;
  return builder.build({.collective = builder.collective,
                        .rank = rank,
                        .ranks = ranks,
                        .root = rooted ? 1 : -1,
                        .widened = true});
}

struct Message {
  std::int64_t from, to, tag;
  std::uint64_t item;  // the first one; 0: an empty message, or blocks that are passed on
  auto operator<=>(const Message&) const = default;
};

/// Calls `visit` with every message that the plan sends, or receives.
void visit_messages(const Plan& plan, StepKind kind, auto&& visit) {
  const std::int64_t own = plan.shape.rank;
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      if (step.kind != kind) continue;
      for (std::uint32_t i = 0; i < lane.instances; ++i) {
        const std::int64_t peer = step.peer.at(i);
        const std::uint64_t item =
            lane.counts == Counts::once || (lane.counts == Counts::all_blocks &&
                                            plan.shape.collective == Collective::all_to_all)
                ? 0
                : item_of(plan, lane.extents, static_cast<std::uint32_t>(step.block.at(i)));
        visit(kind == StepKind::send ? Message{own, peer, step.tag.at(i), item}
                                     : Message{peer, own, step.tag.at(i), item});
      }
    }
  }
}

bool receives(const Plan& plan, const Message& message) {
  bool found = false;
  visit_messages(plan, StepKind::recv,
                 [&](const Message& each) { found = found || each == message; });
  return found;
}

class MessageBuilders : public testing::TestWithParam<Builder> {};

TEST_P(MessageBuilders, have_few_lanes_for_many_ranks) {
  const bool rounds =
      is_logarithmic(GetParam()) || is_one_of(GetParam(), {"circulant", "bruck", "pat"});
  const std::size_t most_lanes = rounds ? 7 * std::bit_width(many_ranks - 1) + 3 : 19;
  for (const std::uint32_t rank : some_ranks) {
    const Plan plan = plan_of(GetParam(), rank, many_ranks);
    std::size_t steps = 0;
    for (const Lane& lane : plan.lanes) steps += lane.steps.size();
    EXPECT_LE(plan.lanes.size(), most_lanes) << "rank " << rank;
    EXPECT_LE(steps, 3 * most_lanes) << "rank " << rank;
  }
}

/// Of plans of log2 p rounds with LONG_TESTS all ranks, else a sample; of the others 65.
TEST_P(MessageBuilders, are_lowered_for_many_ranks) {
  const bool rounds =
      is_logarithmic(GetParam()) || is_one_of(GetParam(), {"circulant", "bruck", "pat"});
  const bool all = rounds && std::getenv("LONG_TESTS") != nullptr;
  const std::size_t tried = all ? many_ranks : rounds ? (tests::sanitized ? 200 : 2000) : 65;
  std::vector<std::uint32_t> ranks(std::begin(some_ranks), std::end(some_ranks));
  std::mt19937_64 random(tests::seed());
  while (ranks.size() < tried) ranks.push_back(static_cast<std::uint32_t>(random() % many_ranks));
  if (all) std::iota(ranks.begin(), ranks.end(), 0U);
  for (const std::uint32_t rank : ranks) {
    Program program;
    const Status status = lower(plan_of(GetParam(), rank, many_ranks), &program);
    ASSERT_TRUE(status.ok()) << "rank " << rank << ": " << status.message();
    ASSERT_EQ(many_ranks, program.header().ranks) << "rank " << rank;
  }
}

TEST(MessageWindows, are_constant_where_no_fold_needs_all_instances) {
  for (const Builder& builder : {*find_builder("pairs", Collective::all_to_all, Medium::messages),
                                 *find_builder("pairs", Collective::gather, Medium::messages),
                                 *find_builder("pairs", Collective::scatter, Medium::messages),
                                 *find_builder("ring", Collective::all_gather, Medium::messages)}) {
    for (const std::uint32_t rank : some_ranks) {
      for (const Lane& lane : plan_of(builder, rank, many_ranks).lanes) {
        EXPECT_LE(lane.window, 8U) << name_of(builder) << ", lane " << lane.name;
      }
    }
  }
}

/// The verifier compares the messages of all ranks, for fewer ranks.
TEST_P(MessageBuilders, pair_sends_with_recvs_for_many_ranks) {
  for (const std::uint32_t rank : some_ranks) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    std::set<std::tuple<std::int64_t, std::int64_t>> tags;
    std::vector<Message> sent;
    visit_messages(plan_of(GetParam(), rank, many_ranks), StepKind::send,
                   [&](const Message& message) {
                     ASSERT_TRUE(message.to >= 0 && message.to < many_ranks);
                     ASSERT_TRUE(message.tag >= 0 && message.tag <= 65535);
                     ASSERT_TRUE(tags.insert({message.to, message.tag}).second)
                         << "two messages to rank " << message.to << " have one tag";
                     sent.push_back(message);
                   });
    if (HasFatalFailure()) return;
    for (std::size_t n = 0; n < sent.size(); n += sent.size() / 16 + 1) {
      const Message& message = sent[n];
      const Plan peer = plan_of(GetParam(), static_cast<std::uint32_t>(message.to), many_ranks);
      EXPECT_TRUE(receives(peer, message))
          << "rank " << message.to << " does not receive item " << message.item;
    }
  }
}

/// How often a rank sends each block of the message in a broadcast.
std::size_t sends_of(const Plan& plan, std::uint32_t block) {
  std::size_t sends = 0;
  visit_messages(plan, StepKind::send,
                 [&](const Message& message) { sends += message.item == block ? 1 : 0; });
  return sends;
}

// So the links of all ranks are used alike: a rank passes at most one half on.
TEST(DoubleTree, has_no_rank_with_children_in_both_trees) {
  const Builder& builder = *find_builder("double-tree", Collective::broadcast, Medium::messages);
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks) {
    for (const Plan& plan : plans_of(builder, {.ranks = ranks, .root = ranks / 2})) {
      const std::size_t first = sends_of(plan, 0), second = sends_of(plan, 1);
      if (plan.shape.is_root()) {
        EXPECT_EQ(first + second, 2U) << ranks << " ranks";
      } else {
        EXPECT_TRUE(first == 0 || second == 0) << ranks << " ranks, rank " << plan.shape.rank;
        EXPECT_LE(first + second, 2U) << ranks << " ranks, rank " << plan.shape.rank;
      }
    }
  }
}

TEST(Items, of_all_pairs_of_many_ranks_differ) {
  constexpr std::uint64_t ranks = 100'000;
  const Builder& pairs = *find_builder("pairs", Collective::all_to_all, Medium::messages);
  const Plan first = plan_of(pairs, 0, ranks), last = plan_of(pairs, ranks - 1, ranks);
  EXPECT_EQ(items(first), ranks * ranks);
  EXPECT_EQ(item_of(last, Buffer::output, 0), ranks - 1);
  EXPECT_EQ(item_of(last, Buffer::input, 0), (ranks - 1) * ranks);
  EXPECT_EQ(item_of(last, Buffer::output, ranks - 1), ranks * ranks - 1);
}

std::vector<Builder> message_builders() {
  std::vector<Builder> found = group_builders();
  std::erase_if(found, [](const Builder& builder) { return builder.medium == Medium::node; });
  return found;
}

INSTANTIATE_TEST_SUITE_P(builders, MessageBuilders, testing::ValuesIn(message_builders()),
                         TestName());

}  // namespace
}  // namespace hocket::internal
