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
#include "source_root.h"

namespace hocket::internal {
namespace {

// No pointer, no padding, no constructor that matters: bytes that another kind of processor can
// read.
template <typename T>
constexpr bool is_plain_data = std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<T>&&
                                   std::has_unique_object_representations_v<T> &&
                               alignof(T) <= 4;  // so no pointer either
static_assert(is_plain_data<ProgramHeader> && is_plain_data<LaneCode> &&
              is_plain_data<Instruction> && is_plain_data<Operand>);

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

class EveryPlanLowered : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryPlanLowered, is_plain_data_and_the_same_each_time) {
  Program again;  // holds the program of another plan each time: nothing of that may remain
  for (const std::uint32_t ranks : {64, 8, 3, 2, 1}) {
    for (const Plan& plan : plans_of(GetParam(), {.ranks = ranks, .widened = true})) {
      Program once;
      ASSERT_TRUE(lower(plan, &once).ok());
      ASSERT_TRUE(lower(plan, &again).ok());
      EXPECT_TRUE(same_bytes(once.bytes(), again.bytes()));
      EXPECT_EQ(once.algorithm(), again.algorithm());
    }
  }
}

/// The array of a program whose bytes were copied elsewhere.
template <typename T>
std::span<const T> array_in(const std::vector<std::uint32_t>& words, std::uint32_t offset,
                            std::uint32_t count) {
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  return {reinterpret_cast<const T*>(bytes + offset), count};
}

template <typename T>
bool same_array(std::span<const T> a, std::span<const T> b) {
  return same_bytes(std::as_bytes(a), std::as_bytes(b));
}

TEST_P(EveryPlanLowered, means_the_same_elsewhere) {
  Program program;
  const Group group = {.ranks = 5, .widened = true, .root = 1};
  ASSERT_TRUE(lower(plans_of(GetParam(), group)[3], &program).ok());
  const std::size_t size = program.header().bytes;
  ASSERT_LE(size, program.bytes().size());
  std::vector<std::uint32_t> words(size / 4 + 1);
  std::memcpy(words.data(), program.bytes().data(), size);
  const auto& header = *reinterpret_cast<const ProgramHeader*>(words.data());
  EXPECT_TRUE(
      same_array(array_in<LaneCode>(words, header.first_lane, header.lanes), program.lanes()));
  EXPECT_TRUE(same_array(
      array_in<Instruction>(words, header.first_instruction, header.instructions), program.code()));
  EXPECT_TRUE(same_array(array_in<Operand>(words, header.first_operand, header.operands),
                         program.operands()));
  // The arrays lie one behind another, and fill the program.
  EXPECT_EQ(header.first_lane, sizeof(ProgramHeader));
  EXPECT_EQ(header.first_instruction, header.first_lane + header.lanes * sizeof(LaneCode));
  EXPECT_EQ(header.first_operand,
            header.first_instruction + header.instructions * sizeof(Instruction));
  EXPECT_EQ(header.bytes, header.first_operand + header.operands * sizeof(Operand));
}

void expect_same(const Range& range, const Operand& operand) {
  EXPECT_EQ(operand.buffer, range.buffer);
  EXPECT_EQ(operand.wide, range.wide);
  EXPECT_EQ(operand.rank, range.rank);
  EXPECT_EQ(operand.block, range.block);
  EXPECT_EQ(operand.repeat, range.repeat);
}

void expect_same(const Step& step, const Instruction& lowered, const Program& program) {
  EXPECT_EQ(lowered.kind, step.kind);
  EXPECT_EQ(lowered.finish, step.finish);
  EXPECT_EQ(lowered.all, step.all);
  EXPECT_EQ(lowered.end, step.end);
  EXPECT_EQ(lowered.flag, step.flag);
  EXPECT_EQ(lowered.lag, step.lag);
  EXPECT_EQ(lowered.peer, step.kind == StepKind::await ? step.instance : step.peer);
  EXPECT_EQ(lowered.tag, step.tag);
  EXPECT_EQ(lowered.block, step.block);
  EXPECT_EQ(lowered.lane, step.lane);
  EXPECT_EQ(lowered.repeat, step.repeat);
  ASSERT_EQ(lowered.dsts, step.dsts.size());
  ASSERT_EQ(lowered.srcs, step.srcs.size());
  std::uint64_t number = 0;
  const Operand* operand = program.operands().data() + lowered.first_operand;
  for (const std::vector<Range>* ranges : {&step.dsts, &step.srcs}) {
    for (const Range& range : *ranges) {
      number += range.repeat;
      expect_same(range, *operand++);
    }
  }
  EXPECT_LE(number, program.header().most_operands);
}

void expect_same(const Lane& lane, const LaneCode& lowered, const Program& program) {
  EXPECT_EQ(lowered.counts, lane.counts);
  EXPECT_EQ(lowered.extents, lane.extents);
  EXPECT_EQ(lowered.block, lane.block);
  EXPECT_EQ(lowered.instances, lane.instances);
  EXPECT_EQ(lowered.window, std::min(lane.window, lane.instances));
  EXPECT_EQ(lowered.publishes, lane.publishes);
  ASSERT_EQ(lowered.count, lane.steps.size());
  for (std::size_t i = 0; i < lane.steps.size(); ++i) {
    expect_same(lane.steps[i], program.code()[lowered.first + i], program);
  }
}

void expect_same(const Plan& plan, const ProgramHeader& header) {
  EXPECT_EQ(header.rank, plan.shape.rank);
  EXPECT_EQ(header.ranks, plan.shape.ranks);
  EXPECT_EQ(header.root, plan.shape.root);
  EXPECT_EQ(header.collective, plan.shape.collective);
  EXPECT_EQ(header.input_blocks, input_blocks(plan));
  EXPECT_EQ(header.output_blocks, output_blocks(plan));
  EXPECT_EQ(header.line_blocks, plan.line_blocks);
  EXPECT_EQ(header.scratch_blocks, plan.scratch_blocks);
  EXPECT_EQ(header.slots, plan.slots);
  EXPECT_EQ(header.wide_scratch, plan.wide_scratch);
  EXPECT_EQ(header.uses_node, plan.uses_node());
  EXPECT_EQ(header.arrives_first, plan.arrives_first);
  EXPECT_EQ(header.maps_input, plan.maps_input);
  EXPECT_EQ(header.maps_output, plan.maps_output);
  EXPECT_EQ(header.single_chunk, plan.single_chunk);
}

TEST_P(EveryPlanLowered, has_every_step_in_its_place) {
  for (const std::uint32_t ranks : {1, 2, 3, 8, 13}) {
    for (const Plan& plan : plans_of(GetParam(), {.ranks = ranks, .widened = true})) {
      SCOPED_TRACE("rank " + std::to_string(plan.shape.rank) + " of " + std::to_string(ranks));
      Program program;
      ASSERT_TRUE(lower(plan, &program).ok());
      expect_same(plan, program.header());
      const Steps entry = entry_of(plan);
      ASSERT_EQ(program.header().entry, entry.size());
      for (std::size_t i = 0; i < entry.size(); ++i) {
        expect_same(entry[i], program.code()[i], program);
      }
      ASSERT_EQ(program.lanes().size(), plan.lanes.size());
      if (!plan.lanes.empty()) {
        EXPECT_EQ(program.lanes()[0].first, entry.size());
      }
      std::uint32_t counters = 0, active = 0;
      for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        const LaneCode& lowered = program.lanes()[lane];
        expect_same(plan.lanes[lane], lowered, program);
        EXPECT_EQ(lowered.first_counter, counters);
        counters += lowered.instances;
        active += lowered.window;
      }
      EXPECT_EQ(program.header().counters, counters);
      EXPECT_EQ(program.header().active, active);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlanLowered, ::testing::ValuesIn(group_builders()),
                         TestName());

std::string text_of(const Index& index) {
  return fmt::format("{},{},{},{}", index.base, index.by_instance, index.by_source, index.modulo);
}

const char* yes(bool value) { return value ? "yes" : "no"; }

/// As docs/protocol/plans.md shows a program of 2 ranks within a node. The fields that are not
/// shown are 0 there, or false.
std::string text_of(const Program& program) {
  static const char* const kinds[] = {"fold",          "send", "recv",  "arrive",
                                      "await_arrival", "wait", "await", "await_board"};
  static const char* const buffers[] = {"in", "out", "scratch", "line"};
  static const char* const counts[] = {"once", "one_block", "all_blocks"};
  std::string text = fmt::format("instructions of the entry: {}\n", program.header().entry);
  text += "lane first count instances window counts     publishes\n";
  for (std::size_t i = 0; i < program.lanes().size(); ++i) {
    const LaneCode& lane = program.lanes()[i];
    text += fmt::format("{:<5}{:<6}{:<6}{:<10}{:<7}{:<11}{}\n", i, lane.first, lane.count,
                        lane.instances, lane.window, counts[static_cast<int>(lane.counts)],
                        lane.publishes);
  }
  text += "code kind           finish all end flag lane block   first_operand dsts srcs\n";
  for (std::size_t i = 0; i < program.code().size(); ++i) {
    const Instruction& in = program.code()[i];
    text += fmt::format("{:<5}{:<15}{:<7}{:<4}{:<4}{:<5}{:<5}{:<8}{:<14}{:<5}{}\n", i,
                        kinds[static_cast<int>(in.kind)], yes(in.finish), yes(in.all), yes(in.end),
                        in.flag, in.lane, text_of(in.block), in.first_operand, in.dsts, in.srcs);
  }
  text += "operand buffer rank    block   repeat\n";
  for (std::size_t i = 0; i < program.operands().size(); ++i) {
    const Operand& op = program.operands()[i];
    text += fmt::format("{:<8}{:<7}{:<8}{:<8}{}\n", i, buffers[static_cast<int>(op.buffer)],
                        text_of(op.rank), text_of(op.block), op.repeat);
  }
  return text;
}

TEST(Lowering, is_as_the_protocol_page_shows_it) {
  std::stringstream page;
  page << std::ifstream(::tests::source_root() / "docs/protocol/plans.md").rdbuf();
  for (const char* algorithm : {"inline", "direct"}) {
    const Plan plan =
        plans_of(*find_builder(algorithm, Collective::all_reduce, Medium::node), {.ranks = 2})[0];
    Program program;
    ASSERT_TRUE(lower(plan, &program).ok());
    for (const std::string& text : {print(plan), text_of(program)}) {
      EXPECT_NE(page.str().find(text), std::string::npos) << "docs/protocol/plans.md lacks\n"
                                                          << text;
    }
  }
}

TEST(Lowering, fails_where_a_number_does_not_fit_its_field) {
  Plan plan =
      plans_of(*find_builder("ring", Collective::all_gather, Medium::messages), {.ranks = 4})[0];
  plan.lanes[0].instances = 0xffffffff;
  Program program;
  EXPECT_NE(lower(plan, &program).message().find("too many lane instances to be lowered"),
            std::string::npos);
  const Builder& ring = *find_builder("ring", Collective::all_gather, Medium::messages);
  const auto lower_for = [&](std::uint32_t ranks) {
    return lower(ring.build({.collective = ring.collective, .ranks = ranks}), &program);
  };
  EXPECT_TRUE(lower_for(65'536).ok());
  EXPECT_NE(lower_for(100'000).message().find("too many message tags to be lowered"),
            std::string::npos);
}

}  // namespace
}  // namespace hocket::internal
