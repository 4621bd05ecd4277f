// What the plans with messages promise for many ranks, beyond the numbers that the interpreter and
// the verifier run.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/plan/program.h"
#include "plans.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal {
namespace {

constexpr std::uint32_t many_ranks = 65536;
constexpr std::uint32_t some_ranks[] = {0, 1, 32767, 32768, many_ranks - 1};

std::vector<std::uint32_t> drawn_ranks(std::size_t number) {
  std::mt19937_64 random(tests::seed());
  std::vector<std::uint32_t> ranks;
  while (ranks.size() < number) {
    ranks.push_back(static_cast<std::uint32_t>(random() % many_ranks));
  }
  return ranks;
}

/// Of many_ranks: most nodes have 256, one has less, and one has a single rank.
const Layout& many_nodes() {
  static const Layout layout = [] {
    std::vector<std::uint32_t> sizes(255, 256);
    sizes.insert(sizes.begin() + 100, {1, 255});
    return layout_of(sizes);
  }();
  return layout;
}

Plan plan_of(const Builder& builder, std::uint32_t rank, std::uint32_t ranks) {
  const bool rooted = row_of(builder.collective).rooted;
  return builder.build({.collective = builder.collective,
                        .rank = rank,
                        .ranks = ranks,
                        .root = rooted ? 1 : -1,
                        .widened = true,
                        .layout = builder.medium == Medium::both ? &many_nodes() : nullptr});
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

/// True if a rank sends few messages, which carry several blocks or go up and down a tree.
bool has_rounds(const Builder& builder) {
  return is_logarithmic(builder) || is_one_of(builder, {"circulant", "bruck", "pat"});
}

class MessageBuilders : public ::testing::TestWithParam<Builder> {};

TEST_P(MessageBuilders, have_few_lanes_for_many_ranks) {
  const std::size_t most_lanes =
      has_rounds(GetParam()) ? 7 * std::bit_width(many_ranks - 1) + 3 : 19;
  for (const std::uint32_t rank : some_ranks) {
    const Plan plan = plan_of(GetParam(), rank, many_ranks);
    std::size_t steps = 0;
    for (const Lane& lane : plan.lanes) steps += lane.steps.size();
    EXPECT_LE(plan.lanes.size(), most_lanes) << "rank " << rank;
    EXPECT_LE(steps, 3 * most_lanes) << "rank " << rank;
  }
}

/// True if the index is at least 0 and below the limit for all instances and all repetitions.
bool in_range(const Index& index, std::uint32_t instances, std::uint32_t repeat,
              std::int64_t limit) {
  const auto is_right = [&](std::uint32_t i, std::uint32_t j) {
    return index.at(i, j) >= 0 && index.at(i, j) < limit;
  };
  if (instances == 0 || repeat == 0) return true;
  const std::uint32_t last_i = instances - 1, last_j = repeat - 1;
  if (index.modulo == 0) {  // affine: the ends decide
    return is_right(0, 0) && is_right(last_i, 0) && is_right(0, last_j) && is_right(last_i, last_j);
  }
  if (index.modulo <= limit) return true;
  for (std::uint32_t i = 0; i < instances; ++i) {
    for (std::uint32_t j = 0; j < repeat; ++j) {
      if (!is_right(i, j)) return false;
    }
  }
  return true;
}

std::int64_t blocks_of(const ProgramHeader& header, Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return header.input_blocks;
    case Buffer::output:
      return header.output_blocks;
    case Buffer::scratch:
      return header.scratch_blocks;
    case Buffer::line:
      break;
  }
  return header.line_blocks;
}

/// Empty, or which number of a lowered step is out of range.
std::string wrong_number(const Program& program, const Plan& plan, const LaneCode& lane,
                         const Instruction& step) {
  const ProgramHeader& header = program.header();
  const auto locals = static_cast<std::int64_t>(plan.node.size());
  const bool is_data = step.dsts + step.srcs > 0;
  const bool is_sent = step.kind == StepKind::send || step.kind == StepKind::recv;
  if (is_sent && !in_range(step.peer, lane.instances, 1, header.ranks)) return "peer";
  if (is_sent && !in_range(step.tag, lane.instances, 1, 65536)) return "tag";
  if (step.kind == StepKind::await && step.lane >= header.lanes) return "lane";
  const bool waits = step.kind == StepKind::wait || step.kind == StepKind::await_arrival;
  if (waits && !step.all && !in_range(step.peer, lane.instances, 1, locals)) return "local peer";
  const std::int64_t blocks = blocks_of(header, lane.extents);
  if (is_data && !in_range(step.block, lane.instances, step.repeat, blocks)) return "block";
  for (std::uint32_t n = 0; n < step.dsts + step.srcs; ++n) {
    const Operand& operand = program.operands()[step.first_operand + n];
    const std::uint32_t repeat = std::max(operand.repeat, step.repeat);
    const std::int64_t ranks = plan.uses_node() ? locals : header.ranks;
    if (!in_range(operand.rank, lane.instances, repeat, ranks)) return "rank";
    if (!in_range(operand.block, lane.instances, repeat, blocks_of(header, operand.buffer))) {
      return "operand";
    }
  }
  return {};
}

void expect_numbers_in_range(const Builder& builder, const std::vector<std::uint32_t>& ranks) {
  for (const std::uint32_t rank : ranks) {
    const Plan plan = plan_of(builder, rank, many_ranks);
    Program program;
    const Status lowered = lower(plan, &program);
    ASSERT_TRUE(lowered.ok()) << lowered.message();
    ASSERT_EQ(program.lanes().size(), plan.lanes.size());
    ASSERT_EQ(program.header().ranks, many_ranks);
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      const LaneCode& lane = program.lanes()[l];
      for (std::uint32_t n = 0; n < lane.count; ++n) {
        const Instruction& step = program.code()[lane.first + n];
        ASSERT_EQ("", wrong_number(program, plan, lane, step))
            << "of rank " << rank << ", lane " << plan.lanes[l].name << ": "
            << print(plan, plan.lanes[l].steps[n]);
      }
    }
  }
}

/// Of plans of log2 p rounds with LONG_TESTS all ranks, else a sample; of the others 65.
TEST_P(MessageBuilders, are_lowered_with_every_number_in_range_for_many_ranks) {
  const bool rounds = has_rounds(GetParam());
  const bool all = rounds && std::getenv("LONG_TESTS") != nullptr;
  const std::size_t tried = all ? many_ranks : rounds ? (tests::sanitized ? 60 : 2000) : 65;
  std::vector<std::uint32_t> ranks = drawn_ranks(tried - std::size(some_ranks));
  ranks.insert(ranks.end(), std::begin(some_ranks), std::end(some_ranks));
  if (all) std::iota(ranks.begin(), ranks.end(), 0U);
  expect_numbers_in_range(GetParam(), ranks);
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

/// Empty, or what is wrong with the messages that a rank sends.
std::string wrong_send(std::vector<Message>& sent) {
  for (const Message& message : sent) {
    if (message.to < 0 || message.to >= many_ranks || message.to == message.from) {
      return "a message to rank " + std::to_string(message.to);
    }
    if (message.tag < 0 || message.tag > 65535) return "tag " + std::to_string(message.tag);
  }
  const auto key = [](const Message& message) { return std::tuple(message.to, message.tag); };
  std::ranges::sort(sent, {}, key);
  const auto twice = std::ranges::adjacent_find(sent, {}, key);
  return twice == sent.end()
             ? ""
             : "two messages to rank " + std::to_string(twice->to) + " have one tag";
}

/// The verifier compares the messages of all ranks, for fewer ranks.
void expect_pairs(const Builder& builder, const std::vector<std::uint32_t>& ranks,
                  std::size_t most_peers) {
  for (const std::uint32_t rank : ranks) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    std::vector<Message> sent;
    visit_messages(plan_of(builder, rank, many_ranks), StepKind::send,
                   [&](const Message& message) { sent.push_back(message); });
    ASSERT_EQ("", wrong_send(sent));
    for (std::size_t n = 0; n < sent.size(); n += sent.size() / most_peers + 1) {
      const Message& message = sent[(n + rank) % sent.size()];
      const Plan peer = plan_of(builder, static_cast<std::uint32_t>(message.to), many_ranks);
      EXPECT_TRUE(receives(peer, message))
          << "rank " << message.to << " does not receive item " << message.item;
    }
  }
}

TEST_P(MessageBuilders, pair_sends_with_recvs_for_many_ranks) {
  expect_pairs(GetParam(), {std::begin(some_ranks), std::end(some_ranks)}, 16);
  expect_pairs(GetParam(), drawn_ranks(tests::sanitized ? 2 : 60), has_rounds(GetParam()) ? 16 : 1);
}

/// The plans of two-level have lanes for all nodes or all ranks: a few ranks do.
class LayeredBuilders : public ::testing::TestWithParam<Builder> {};

TEST_P(LayeredBuilders, pair_sends_with_recvs_for_many_ranks) {
  expect_pairs(GetParam(), drawn_ranks(tests::sanitized ? 1 : 3), 1);
}

TEST_P(LayeredBuilders, are_lowered_with_every_number_in_range_for_many_ranks) {
  expect_numbers_in_range(GetParam(), drawn_ranks(3));
}

INSTANTIATE_TEST_SUITE_P(builders, LayeredBuilders, ::testing::ValuesIn(layout_builders()),
                         TestName());

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

INSTANTIATE_TEST_SUITE_P(builders, MessageBuilders, ::testing::ValuesIn(message_builders()),
                         TestName());

}  // namespace
}  // namespace hocket::internal
