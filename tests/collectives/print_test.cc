#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "collectives/plan/steps.h"
#include "plans.h"
#include "source_root.h"

namespace hocket::internal {
namespace {

using namespace steps;

// UPDATE_GOLDEN=1 writes the files anew; git diff shows the changes.
TEST(Print, pictures_of_four_ranks_are_as_reviewed) {
  const std::filesystem::path folder = ::tests::source_root() / "tests/collectives/golden";
  const auto compare = [&](const std::string& name, const std::vector<Plan>& plans) {
    std::string text;
    for (const Plan& plan : plans) text += print(plan) + "\n";
    const std::filesystem::path file = folder / (name + ".txt");
    if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(file) << text;
    std::stringstream golden;
    golden << std::ifstream(file).rdbuf();
    EXPECT_EQ(text, golden.str()) << file;
  };
  for (const Builder& builder : group_builders()) {
    compare(name_of(builder), plans_of(builder, {.ranks = 4, .widened = true, .root = 1}));
  }
  const Layout two_nodes = layout_of({2, 2});
  for (const Builder& builder : layout_builders()) {
    compare(name_of(builder),
            plans_of(builder, {.ranks = 4, .widened = true, .root = 1, .layout = &two_nodes}));
  }
  compare("message", message_plans());
}

/// A plan of rank 5, which is local rank 2 of a node, with a lane for awaits.
Plan plan_with_lanes() {
  Plan plan;
  plan.shape.rank = 5;
  plan.node = {1, 3, 5};
  plan.lanes = {instances(once("many", {}), 3, 2), once("one", {})};
  return plan;
}

TEST(Print, shows_how_an_index_is_computed) {
  const Plan plan = plan_with_lanes();
  const auto text = [&](Index index) { return print(plan, send_empty(index, fixed(0))); };
  EXPECT_EQ(text(fixed(3)), "send nothing -> 3 tag 0");
  EXPECT_EQ(text(fixed(-1)), "send nothing -> -1 tag 0");
  EXPECT_EQ(text({.base = 5, .modulo = 4}), "send nothing -> 1 tag 0");
  EXPECT_EQ(text(by_instance(0, 1)), "send nothing -> i tag 0");
  EXPECT_EQ(text(by_instance(0, -1, 4)), "send nothing -> (-i)%4 tag 0");
  EXPECT_EQ(text(by_instance(1, 1, 4)), "send nothing -> (1+i)%4 tag 0");
  EXPECT_EQ(text(by_instance(-2, -3)), "send nothing -> -2-3i tag 0");
  EXPECT_EQ(text(by_source(0, 1, 4)), "send nothing -> j%4 tag 0");
  EXPECT_EQ(text({.base = 1, .by_instance = 2, .by_source = -1, .modulo = 8}),
            "send nothing -> (1+2i-j)%8 tag 0");
}

TEST(Print, shows_what_a_step_would_otherwise_hide) {
  const Plan plan = plan_with_lanes();
  const Ranges r(2);
  const auto text = [&](const Step& step) { return print(plan, step); };
  EXPECT_EQ(text(copy(fixed(5), r.input(fixed(5)), {r.output(fixed(5))})), "copy in[5] -> out[5]");
  EXPECT_EQ(text(copy(fixed(5), r.input(fixed(0)), {r.output(fixed(5))})),
            "copy in[0] -> out[5] (block 5)");
  EXPECT_EQ(text(fold(fixed(0), {times(at(r.scratch(fixed(0)), by_source(0)), 3)},
                      r.scratch(fixed(0), true))),
            "fold s[0]@j{j<3} -> s[0]w");
  EXPECT_EQ(text(fold(fixed(1), {at(r.scratch(fixed(1)), by_source(1))}, r.scratch(fixed(1)))),
            "copy s[1]@1 -> s[1]")
      << "j is 0 where a range is not repeated";
  EXPECT_EQ(text(finish(fixed(0), {r.line(fixed(0)), at(r.line(fixed(0)), fixed(1))},
                        {r.output(fixed(0)), at(r.output(fixed(0)), fixed(0))})),
            "finish line[0] + line[0]@1 -> out[0], out[0]@0");
  EXPECT_EQ(text(send(by_instance(6, 1, 8), by_instance(0, 2), fixed(1), r.scratch(fixed(0)))),
            "send s[0] -> (6+i)%8 tag 2i (block 1)");
  EXPECT_EQ(
      text(for_blocks(
          copy(by_source(1, 1, 4), r.input(by_source(1, 1, 4)), {r.scratch(by_source(0))}), 3)),
      "copy in[(1+j)%4] -> s[j] (blocks (1+j)%4{j<3})");
  EXPECT_EQ(text(for_blocks(send(fixed(1), fixed(0), fixed(0), r.scratch(by_source(2))), 3)),
            "send s[2+j] -> 1 tag 0 (blocks 0{j<3})");
  EXPECT_EQ(text(recv(fixed(7), fixed(1), fixed(0), r.output(fixed(0)))), "recv 7 tag 1 -> out[0]");
  EXPECT_EQ(text(recv_empty(fixed(7), fixed(1))), "recv 7 tag 1 -> nothing");
  EXPECT_EQ(text(arrive()), "arrive");
  EXPECT_EQ(text(await_arrival()), "await arrival of all");
  EXPECT_EQ(text(await_arrival(fixed(1))), "await arrival of 1");
  EXPECT_EQ(text(wait_all(1)), "wait 1 of all");
  EXPECT_EQ(text(wait(fixed(0), 1, 2)), "wait 1 of 0 (2 back)");
  EXPECT_EQ(text(await(1, fixed(0), 4)), "await 1 one (4 back)");
  EXPECT_EQ(text(await(0, by_instance(-1, 1))), "await 0 many[-1+i]");
  EXPECT_EQ(text(await_each(0, by_source(0), 3)), "await 0 many[j]{j<3}");
  EXPECT_EQ(text(await_end(0, fixed(2))), "await end of 0 many[2]");
  EXPECT_EQ(text(await_end(1, fixed(1))), "await end of 1 one[1]")
      << "an instance it does not have";
  EXPECT_EQ(text(await(2, fixed(0))), "await 2[0]") << "a lane that the plan does not have";
}

TEST(Print, shows_the_header_and_the_lanes_of_a_plan) {
  Plan plan = plan_with_lanes();
  plan.algorithm = "example";
  plan.shape = {
      .collective = Collective::gather, .rank = 5, .ranks = 6, .root = 1, .varying = true};
  plan.scratch_blocks = 3;
  plan.line_blocks = 2;
  plan.wide_scratch = true;
  plan.slots = 2;
  plan.arrives_first = plan.maps_input = plan.maps_output = plan.single_chunk = true;
  plan.lanes.push_back(publishing(all_blocks("all", Buffer::output, {wait(fixed(0), 0)}), 1));
  plan.lanes.push_back(
      instances(one_block("each", Buffer::input, by_instance(4, -1), {arrive()}), 5, 5));
  plan.lanes.push_back(
      one_block("alone", Buffer::input, by_instance(4, 1),
                {await(0, by_instance(1, -1)),
                 send(by_instance(6, 1, 4), by_instance(1, 2), by_instance(4, 1),
                      at(Ranges(2).input(by_instance(4, 1)), by_instance(0, 1)))}));
  EXPECT_EQ(print(plan),
            "gather by example: rank 5 of 6, root 1, varying\n"
            "cut 1; wide scratch 3 x 2 slots; line 2; load/store and messages; maps inputs; maps "
            "outputs; single chunk\n"
            "entry\n"
            "  await board\n"
            "  arrive\n"
            "  await arrival of all\n"
            "lane 0 many: once, 3 instances, window 2\n"
            "lane 1 one: once\n"
            "lane 2 all: all blocks of the output, publishes 1\n"
            "  wait 0 of 0\n"
            "lane 3 each: block 4-i of the input, 5 instances, window 5\n"
            "  arrive\n"
            "lane 4 alone: block 4 of the input\n"
            "  await 0 many[1]\n"
            "  send in[4]@0 -> 2 tag 1\n");
}

}  // namespace
}  // namespace hocket::internal
