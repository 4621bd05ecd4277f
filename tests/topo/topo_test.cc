// hocket-topo: when messages are under way, what the picture shows, and the program itself.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "collectives/plan/json.h"
#include "collectives/plans.h"
#include "collectives/select/loaded_plan.h"
#include "svg.h"
#include "walk.h"

namespace hocket::topo {
namespace {

using namespace internal;
using enum Collective;

Walk walk_of(const std::vector<Plan>& plans) {
  Walk found;
  const Status status = walk(plans, &found);
  EXPECT_TRUE(status.ok()) << status.message();
  return found;
}

Walk walk_of(const char* algorithm, Collective collective, std::uint32_t ranks) {
  return walk_of(
      plans_of(*find_builder(algorithm, collective, Medium::messages), {.ranks = ranks}));
}

/// Messages of a call whose blocks are small.
std::size_t sends_of(const std::vector<Plan>& plans) {
  const auto sends_small = [](const Step& step) {
    return step.kind == StepKind::send && step.when != When::large;
  };
  std::size_t sends = 0;
  for (const Plan& plan : plans) {
    for (const Lane& lane : plan.lanes) {
      sends +=
          lane.instances * static_cast<std::size_t>(std::ranges::count_if(lane.steps, sends_small));
    }
  }
  return sends;
}

TEST(Walk, finds_every_message_of_every_plan) {
  for (const Builder& builder : group_builders()) {
    for (const std::uint32_t ranks : {1, 2, 3, 4, 5, 8, 13}) {
      const std::vector<Plan> plans = plans_of(builder, {.ranks = ranks, .root = ranks / 2});
      const Walk found = walk_of(plans);
      const auto messages = std::ranges::count(found.arrows, true, &Arrow::message);
      EXPECT_EQ(static_cast<std::size_t>(messages), sends_of(plans))
          << name_of(builder) << ", " << ranks << " ranks";
      for (const Arrow& arrow : found.arrows) {
        EXPECT_LT(arrow.time, found.end + (arrow.message ? 0 : 1)) << name_of(builder);
      }
    }
  }
}

// What the files of the algorithms say about their rounds.
TEST(Walk, takes_as_many_message_times_as_the_algorithms_promise) {
  for (std::uint32_t ranks = 2; ranks <= 33; ++ranks) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const std::uint32_t up = std::bit_width(ranks - 1), down = std::bit_width(ranks) - 1;
    EXPECT_EQ(walk_of("circulant", all_reduce, ranks).end, 2 * up);
    EXPECT_EQ(walk_of("circulant", all_gather, ranks).end, up);
    EXPECT_EQ(walk_of("circulant", reduce_scatter, ranks).end, up);
    EXPECT_EQ(walk_of("pat", all_gather, ranks).end, up);
    EXPECT_EQ(walk_of("pat", reduce_scatter, ranks).end, up);
    EXPECT_EQ(walk_of("bruck", all_to_all, ranks).end, up);
    const std::uint32_t doubling = walk_of("recursive-doubling", all_reduce, ranks).end;
    EXPECT_GE(doubling, up);
    EXPECT_LE(doubling, down + (up > down ? 2 : 0));
    EXPECT_EQ(walk_of("tree", barrier, ranks).end, up);
    EXPECT_EQ(walk_of("tree", broadcast, ranks).end, down);
    EXPECT_EQ(walk_of("ring", all_reduce, ranks).end, 2 * (ranks / 2));
    EXPECT_EQ(walk_of("owner-fold", all_reduce, ranks).end, 2U);
    EXPECT_LE(walk_of("double-tree", broadcast, ranks).end, up + 1);
    EXPECT_LE(walk_of("k-nomial", broadcast, ranks).end, (up + 1) / 2);
  }
}

TEST(Walk, labels_a_message_with_its_blocks) {
  const Walk found = walk_of("circulant", reduce_scatter, 4);
  ASSERT_EQ(found.arrows.size(), 8U);
  EXPECT_EQ(found.arrows[0], (Arrow{0, 2, 0, true, "2 3"}));
  EXPECT_EQ(found.arrows[4], (Arrow{0, 1, 1, true, "1"}));
  EXPECT_EQ(walk_of("bruck", all_to_all, 4).arrows[0].label, "2 blocks");
  const Builder& doubling = *find_builder("recursive-doubling", all_reduce, Medium::messages);
  EXPECT_EQ(walk_of(plans_of(doubling, {.ranks = 4, .widened = true})).arrows[4].label, "0 wide");
}

TEST(Walk, shows_the_memory_of_peers_that_a_step_accesses) {
  const Builder& direct = *find_builder("direct", all_gather, Medium::node);
  const Walk found = walk_of(plans_of(direct, {.ranks = 3}));
  EXPECT_EQ(found.arrows.size(), 6U);
  for (const Arrow& arrow : found.arrows) {
    EXPECT_FALSE(arrow.message);
    EXPECT_EQ(arrow.time, 1U) << "after all ranks have arrived";
  }
}

TEST(Walk, names_the_step_of_plans_that_deadlock) {
  std::vector<Plan> plans =
      plans_of(*find_builder("tree", broadcast, Medium::messages), {.ranks = 2});
  plans[0].lanes.erase(plans[0].lanes.begin());
  Walk found;
  EXPECT_EQ(walk(plans, &found).message(), "rank 1 waits for ever at: recv 0 tag 1 -> out[0]");
}

TEST(Svg, has_a_column_for_each_rank_and_an_arrow_for_each_message) {
  const Walk found = walk_of("ring", all_reduce, 5);
  const std::string picture = svg_of("title", 5, found);
  const auto count = [&](const std::string& word) {
    std::size_t number = 0;
    for (std::size_t at = picture.find(word); at != std::string::npos;
         at = picture.find(word, at + 1)) {
      ++number;
    }
    return number;
  };
  EXPECT_EQ(count(">rank "), 5U);
  EXPECT_EQ(count("class=\"message\""), found.arrows.size());
  EXPECT_EQ(count("class=\"time\""), found.end + 1);
  EXPECT_EQ(count(">title<"), 1U);
  // From rank 0 (column 70) at time 0 (row 70) to rank 1 (column 210) at time 1 (row 160).
  EXPECT_EQ(count("M 70 70 L 210 160"), 1U);
}

struct Ran {
  int status;
  std::string output;
};

Ran run(const std::string& arguments) {
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hocket-topo";
  const std::string command = EMULATOR " " + program.string() + " " + arguments + " 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  Ran ran;
  std::array<char, 4096> bytes;
  while (const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), pipe)) {
    ran.output.append(bytes.data(), got);
  }
  ran.status = ::pclose(pipe);
  return ran;
}

TEST(Program, prints_plans_and_writes_the_picture) {
  const std::vector<Plan> plans =
      plans_of(*find_builder("circulant", all_reduce, Medium::messages), {.ranks = 5});
  const auto file = std::filesystem::temp_directory_path() /
                    ("hocket-topo-" + std::to_string(::getpid()) + ".svg");
  const Ran ran =
      run("plan all_reduce --ranks 5 --algorithm circulant --rank 3 --svg " + file.string());
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.output, print(plans[3]) + "\n");
  std::stringstream picture;
  picture << std::ifstream(file).rdbuf();
  EXPECT_EQ(picture.str(), svg_of("all-reduce by circulant, 5 ranks", 5, walk_of(plans)));
  std::filesystem::remove(file);
}

TEST(Program, writes_plans_that_hocket_loads) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("hocket-topo-" + std::to_string(::getpid()) + ".json");
  const std::uint32_t two_and_one[] = {0, 0, 1};
  const Layout nodes(two_and_one);
  for (const std::string plan :
       {"all_reduce --algorithm ring", "gather --algorithm k-nomial",
        "broadcast --algorithm staged --node", "scatter --algorithm two-level --nodes 2,1"}) {
    SCOPED_TRACE(plan);
    EXPECT_EQ(run("plan " + plan + " --ranks 3 --json " + path.string()).status, 0);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    std::filesystem::remove(path);
    PlanFile file;
    const Status read = read_plan(text.str(), "file", &file);
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_TRUE(file.name.starts_with("my-")) << file.name;
    std::shared_ptr<const LoadedPlan> loaded;
    const Status verified = LoadedPlans().verify(file, 3, &loaded, &nodes);
    EXPECT_TRUE(verified.ok()) << verified.message();
  }
}

TEST(Program, says_what_is_wrong) {
  const auto expect_error = [](const std::string& arguments, const std::string& words) {
    const Ran ran = run("plan " + arguments);
    EXPECT_NE(ran.status, 0);
    EXPECT_EQ(ran.output, "hocket-topo: " + words + "\n");
  };
  expect_error("barrier --algorithm ring",
               "'ring' is none of the algorithms for barrier over messages: one-shot, tree");
  expect_error("all-sorts --algorithm ring", "there is no 'all-sorts' over messages");
  expect_error("broadcast --algorithm tree --root 4", "there is no rank 4");
  expect_error("broadcast --algorithm tree --rank 4", "there is no rank 4");
  const Ran ran = run("plan all-reduce --algorithm tree --ranks 65 --rank 0 --json never-written");
  EXPECT_NE(ran.output.find("hocket-topo: a plan of a user is for 2 to 64 ranks\n"),
            std::string::npos);
  EXPECT_NE(ran.status, 0);
  expect_error("all-reduce --algorithm ring --varying",
               "that algorithm needs blocks of equal counts");
}

}  // namespace
}  // namespace hocket::topo
