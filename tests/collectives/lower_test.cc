// A lowered program is plain data with the same meaning as its plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <type_traits>

#include "collectives/plan/program.h"
#include "plans.h"

namespace hocket::internal {
namespace {

// No pointer, no padding, no constructor that matters: bytes that another kind of processor can
// read.
template <typename T>
constexpr bool is_plain_data = std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<T>&&
                                   std::has_unique_object_representations_v<T> &&
                               alignof(T) <= 4;  // so no pointer either
static_assert(is_plain_data<Instruction> && is_plain_data<Operand> && is_plain_data<Section>);

template <typename T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

std::vector<std::size_t> numbers_of(const Program& p) {
  return {p.input_blocks,        p.output_blocks,  p.scratch_blocks, p.slots,
          p.load_store,          p.maps_input,     p.maps_output,    p.single_chunk,
          p.awaits_all_arrivals, p.wide_scratch,   p.private_flags,  p.most_operands,
          p.prologue.first,      p.prologue.count, p.epilogue.first, p.epilogue.count};
}

class EveryPlanLowered : public testing::TestWithParam<Builder> {};

TEST_P(EveryPlanLowered, is_plain_data_and_the_same_each_time) {
  Program again;  // holds the program of another plan each time: nothing of that may remain
  for (int ranks : {64, 8, 3, 2, 1}) {
    for (const Plan& plan : plans_of(GetParam(), ranks, true)) {
      Program once;
      ASSERT_TRUE(lower(plan, &once).ok());
      ASSERT_TRUE(lower(plan, &again).ok());
      EXPECT_TRUE(same_bytes(once.code, again.code));
      EXPECT_TRUE(same_bytes(once.operands, again.operands));
      EXPECT_TRUE(same_bytes(once.lanes, again.lanes));
      EXPECT_EQ(numbers_of(once), numbers_of(again));
      EXPECT_EQ(once.algorithm, again.algorithm);
    }
  }
}

void expect_same(const Range& range, const Operand& operand, int rank) {
  EXPECT_EQ(operand.buffer, range.buffer);
  EXPECT_EQ(operand.wide, range.wide);
  EXPECT_EQ(operand.rank, range.rank == own ? rank : range.rank);
  EXPECT_EQ(operand.block, range.block);
  const bool message = range.buffer == Buffer::input || range.buffer == Buffer::output;
  EXPECT_EQ(operand.length_block, message ? range.block : range.length_block);
}

void expect_same(const Steps& steps, const Section& section, const Program& program) {
  ASSERT_EQ(section.count, steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const Instruction& lowered = program.code[section.first + i];
    EXPECT_EQ(lowered.kind, step.kind);
    EXPECT_EQ(lowered.finish, step.finish);
    EXPECT_EQ(lowered.peer, step.peer == own ? all_peers : step.peer);
    EXPECT_EQ(lowered.flag, step.flag);
    EXPECT_EQ(lowered.ordinal, step.ordinal);
    EXPECT_EQ(lowered.lag, step.lag);
    ASSERT_EQ(lowered.dsts, step.dsts.size());
    ASSERT_EQ(lowered.srcs, step.srcs.size());
    ASSERT_LE(lowered.dsts + lowered.srcs, program.most_operands);
    const Operand* operand = program.operands.data() + lowered.first_operand;
    for (const Range& range : step.dsts) expect_same(range, *operand++, program.shape.rank);
    for (const Range& range : step.srcs) expect_same(range, *operand++, program.shape.rank);
  }
}

TEST_P(EveryPlanLowered, has_every_step_in_its_place) {
  for (int ranks : {1, 2, 3, 8, 13}) {
    for (const Plan& plan : plans_of(GetParam(), ranks, true)) {
      SCOPED_TRACE("rank " + std::to_string(plan.shape.rank) + " of " + std::to_string(ranks));
      Program program;
      ASSERT_TRUE(lower(plan, &program).ok());
      expect_same(plan.prologue, program.prologue, program);
      ASSERT_EQ(program.lanes.size(), plan.lanes.size());
      for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        expect_same(plan.lanes[lane], program.lanes[lane], program);
      }
      expect_same(plan.epilogue, program.epilogue, program);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlanLowered, testing::ValuesIn(group_builders()),
                         TestName());

/// As docs/protocol/plans.md shows a program over the board.
std::string text_of(const Program& program) {
  static const char* const kinds[] = {"fold",   "send", "recv",   "arrive", "await_arrival",
                                      "notify", "wait", "signal", "await"};
  static const char* const buffers[] = {"in", "out", "scratch", "line"};
  const auto peer = [](std::uint16_t p) { return p == all_peers ? "all" : std::to_string(p); };
  std::string text =
      fmt::format("prologue {}+{}, lane {}+{}, epilogue {}+{}\n", program.prologue.first,
                  program.prologue.count, program.lanes[0].first, program.lanes[0].count,
                  program.epilogue.first, program.epilogue.count);
  text += "code kind           finish peer flag ordinal lag dsts srcs first_operand\n";
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& in = program.code[i];
    text += fmt::format("{:<5}{:<15}{:<7}{:<5}{:<5}{:<8}{:<4}{:<5}{:<5}{}\n", i,
                        kinds[static_cast<int>(in.kind)], in.finish ? "yes" : "no", peer(in.peer),
                        in.flag, in.ordinal, in.lag, in.dsts, in.srcs, in.first_operand);
  }
  text += "operand buffer rank block length_block\n";
  for (std::size_t i = 0; i < program.operands.size(); ++i) {
    const Operand& op = program.operands[i];
    text += fmt::format("{:<8}{:<7}{:<5}{:<6}{}\n", i, buffers[static_cast<int>(op.buffer)],
                        op.rank, op.block, op.length_block);
  }
  return text;
}

TEST(Lowering, is_as_the_protocol_page_shows_it) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  std::stringstream page;
  page << std::ifstream(root / "docs/protocol/plans.md").rdbuf();
  for (const char* algorithm : {"inline", "direct"}) {
    const Plan plan = plans_of(*find_builder(algorithm, Collective::all_reduce, true), 2, false)[0];
    Program program;
    ASSERT_TRUE(lower(plan, &program).ok());
    for (const std::string& text : {print(plan), text_of(program)}) {
      EXPECT_NE(page.str().find(text), std::string::npos) << "docs/protocol/plans.md lacks\n"
                                                          << text;
    }
  }
}

}  // namespace
}  // namespace hocket::internal
