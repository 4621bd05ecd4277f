// Plans as JSON: what is written is read back, and what is wrong is refused by name.
#include "collectives/plan/json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "collectives/select/selector.h"
#include "plans.h"
#include "sanitized.h"
#include "seed.h"
#include "source_root.h"

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

class EveryBuilder : public ::testing::TestWithParam<Builder> {};

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

/// No limit of files is below what built-in plans need.
TEST_P(EveryBuilder, of_64_ranks_is_within_the_limits_of_files) {
  if (tests::sanitized) GTEST_SKIP() << "the limits of files, not the ways through the code";
  const Builder& builder = GetParam();
  const std::vector<Plan> plans = plans_of(builder, {.ranks = 64, .widened = true});
  PlanFile file;
  const Status read = read_plan(write_json(plans, builder.varying), "text", &file);
  ASSERT_TRUE(read.ok()) << read.message();
  for (const Plan& plan : plans) {
    Plan again;
    const Status built = file.build(plan.shape, &again);
    ASSERT_TRUE(built.ok()) << built.message();
    ASSERT_TRUE(plan == again) << print(plan) << "became\n" << print(again);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryBuilder, ::testing::ValuesIn(group_builders()), TestName());

class EveryLayeredBuilder : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryLayeredBuilder, is_written_with_its_layout_and_read_back_as_the_same_plans) {
  const Builder& builder = GetParam();
  for (const std::vector<std::uint32_t>& nodes : {std::vector<std::uint32_t>{0, 0, 1, 1},
                                                  {0, 0, 0, 1},
                                                  {0, 1, 1, 1, 1, 2, 2},
                                                  {0, 1, 0, 1}}) {
    const Layout layout(nodes), other = layout_of({1, 2, 1});
    const std::string text = write_json(
        plans_for_all_roots(builder, {.ranks = layout.ranks(), .widened = true, .layout = &layout}),
        builder.varying);
    PlanFile file;
    const Status read = read_plan(text, "text", &file);
    ASSERT_TRUE(read.ok()) << read.message() << "\n" << text;
    EXPECT_TRUE(file.serves(layout.ranks(), &layout));
    EXPECT_FALSE(file.serves(layout.ranks(), &other));
    for (const Plan& plan : plans_for_all_roots(
             builder, {.ranks = layout.ranks(), .widened = true, .layout = &layout})) {
      Plan again;
      const Status built = file.build(plan.shape, &again);
      ASSERT_TRUE(built.ok()) << built.message() << "\n" << text;
      ASSERT_TRUE(plan == again) << print(plan) << "became\n" << print(again) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryLayeredBuilder, ::testing::ValuesIn(layout_builders()),
                         TestName());

const std::filesystem::path& root = ::tests::source_root();

std::string contents(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

std::string example(const std::string& name) {
  return contents(root / "examples" / "plans" / (name + ".json"));
}

/// The error of a text as a plan for that many ranks; empty: it is verified.
std::string refusal(const std::string& text, std::uint32_t ranks, const Layout* layout = nullptr) {
  PlanFile file;
  const Status read = read_plan(text, "my.json", &file);
  if (!read.ok()) return read.message();
  std::shared_ptr<const LoadedPlan> plan;
  const Status verified = LoadedPlans().verify(file, ranks, &plan, layout);
  EXPECT_EQ(verified.ok(), plan != nullptr);
  return verified.ok() ? "" : verified.message();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(std::string::npos, at) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text, const Layout& layout) {
  return refusal(text, layout.ranks(), &layout);
}

void expect_refused(const std::string& text, const std::string& part, std::uint32_t ranks = 4,
                    const Layout* layout = nullptr) {
  const std::string said = refusal(text, ranks, layout);
  EXPECT_NE(std::string::npos, said.find(part)) << "expected: " << part << "\nsaid: " << said;
  EXPECT_TRUE(said.starts_with("my.json: ")) << said;
}

TEST(PlanFiles, of_the_examples_are_verified) {
  EXPECT_EQ("", refusal(example("cube"), 4));
  for (const std::uint32_t ranks : {2, 3, 4, 5, 8, 13}) {
    EXPECT_EQ("", refusal(example("chain"), ranks)) << ranks;
  }
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2, 2}, {2, 2, 2}, {4, 4}, {3, 3, 3, 3}}) {
    EXPECT_EQ("", refusal(example("rails"), layout_of(sizes))) << sizes.size() << sizes[0];
  }
}

/// Who sends how many messages to whom, at whatever time.
using Pattern = std::map<std::pair<std::int64_t, std::int64_t>, int>;

Pattern pattern_of(const std::vector<Plan>& plans) {
  Pattern pattern;
  for (const Plan& plan : plans) {
    for (const Lane& lane : plan.lanes) {
      for (const Step& step : lane.steps) {
        if (step.kind != StepKind::send) continue;
        for (std::uint32_t i = 0; i < lane.instances; ++i) {
          ++pattern[{plan.shape.rank, step.peer.at(i)}];
        }
      }
    }
  }
  return pattern;
}

/// The built-in algorithms that serve the collective of an example by the same links, and send the
/// same messages there.
std::set<std::string> algorithms_like(const std::string& name, Group group) {
  PlanFile file;
  const Status read = read_plan(example(name), name, &file);
  EXPECT_TRUE(read.ok()) << read.message();
  Builder own{};
  own.algorithm = file.name.c_str();
  own.collective = file.collective;
  own.medium = file.medium;
  own.file = &file;
  const Pattern expected = pattern_of(plans_of(own, group));
  EXPECT_FALSE(expected.empty());
  std::set<std::string> found;
  for (const Builder& builder : builders()) {
    if (builder.collective != file.collective || builder.medium != file.medium) continue;
    if (pattern_of(plans_of(builder, group)) == expected) found.insert(builder.algorithm);
  }
  return found;
}

TEST(PlanFiles, of_the_examples_have_messages_of_their_own) {
  using Names = std::set<std::string>;
  EXPECT_EQ(Names{"recursive-doubling"}, algorithms_like("cube", {.ranks = 4}));
  for (const std::uint32_t ranks : {3, 4, 5, 8, 13}) {
    for (std::uint32_t root = 0; root < ranks; ++root) {
      EXPECT_EQ(Names{}, algorithms_like("chain", {.ranks = ranks, .root = root})) << ranks;
    }
  }
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2, 2, 2}, {3, 3, 3, 3}}) {
    const Layout layout = layout_of(sizes);
    EXPECT_EQ(Names{}, algorithms_like("rails", {.ranks = layout.ranks(), .layout = &layout}));
  }
}

TEST(PlanFiles, of_the_manual_are_verified) {
  const std::string manual = contents(root / "docs" / "PLANS.md");
  int found = 0;
  const std::string open = "```json\n", close = "```\n";
  for (std::size_t at = manual.find(open); at != std::string::npos; at = manual.find(open, at)) {
    const std::size_t begin = at + open.size(), end = manual.find(close, begin);
    const std::string text = manual.substr(begin, end - begin);
    at = end + close.size();
    PlanFile file;
    const Status read = read_plan(text, "PLANS.md", &file);
    ASSERT_TRUE(read.ok()) << read.message() << text;
    ++found;
    bool served = false;
    for (std::uint32_t ranks = 2; ranks <= 8; ++ranks) {
      if (!file.serves(ranks)) continue;
      served = true;
      EXPECT_EQ("", refusal(text, ranks)) << ranks << text;
    }
    EXPECT_TRUE(served) << text;
  }
  EXPECT_GE(found, 4);
}

using Json = nlohmann::json;

/// The values for keys of steps, of which each has all that its kind may have.
std::vector<Json> full_steps() {
  const char* const small = "small";
  return {
      {{"copy", "in[0]"}, {"into", "out[0]"}, {"block", 0}, {"repeat", 1}, {"when", small}},
      {{"fold", "in[0]"}, {"into", "out[0]"}, {"block", 0}, {"repeat", 1}, {"when", "large"}},
      {{"finish", "in[0]"}, {"into", "out[0]"}, {"block", 0}, {"repeat", 1}, {"when", small}},
      {{"send", "nothing"}, {"to", 1}, {"tag", 0}, {"block", 0}, {"repeat", 1}, {"when", small}},
      {{"recv", "nothing"}, {"from", 1}, {"tag", 0}, {"block", 0}, {"repeat", 1}, {"when", small}},
      {{"await", "x"}, {"instance", 0}, {"repeat", 1}, {"back", 0}},
      {{"await_end", "x"}, {"instance", 0}, {"repeat", 1}},
      {{"arrive", true}},
      {{"await_arrival", "all"}},
      {{"wait", 0}, {"of", "all"}, {"back", 0}}};
}

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

/// The schema and the reader know the same keys.
TEST(PlanSchema, has_the_keys_that_are_read) {
  const Json schema = Json::parse(contents(root / "docs" / "plan.schema.json"));
  Json plan = Json::parse(example("chain"));
  const auto read = [](const Json& json) {
    PlanFile file;
    const Status status = read_plan(json.dump(), "text", &file);
    return status.ok() ? "" : status.message();
  };
  const auto expect_known = [&](const Json& properties, Json& object) {
    for (const auto& [key, value] : properties.items()) {
      const Json before = object;
      if (!object.contains(key)) object[key] = nullptr;
      EXPECT_EQ(std::string::npos, read(plan).find("unknown key '" + key)) << key;
      object = before;
    }
    for (const std::string& key : keys_of(object)) EXPECT_TRUE(properties.contains(key)) << key;
  };
  expect_known(schema["properties"], plan);
  expect_known(schema["$defs"]["lane"]["properties"], plan["lanes"][0]);
  std::set<std::set<std::string>> in_schema, in_reader;
  for (const Json& step : schema["$defs"]["step"]["oneOf"]) {
    in_schema.insert(keys_of(step["properties"]));
  }
  for (const Json& step : full_steps()) {
    in_reader.insert(keys_of(step));
    plan["lanes"][0]["steps"] = Json::array({step});
    EXPECT_EQ("", read(plan)) << step.dump();
    for (const std::string key :
         {"into", "to", "from", "tag", "instance", "repeat", "back", "of", "when"}) {
      if (step.contains(key)) continue;
      plan["lanes"][0]["steps"][0][key] = 0;
      EXPECT_NE(std::string::npos, read(plan).find("unknown key '" + key)) << step.dump();
      plan["lanes"][0]["steps"][0].erase(key);
    }
  }
  EXPECT_EQ(in_schema, in_reader);
}

TEST(PlanFiles, that_are_no_json_are_refused_with_line_and_column) {
  expect_refused(replaced(example("chain"), "\"steps\": [", "\"steps\": [,"), "line 8, column 81");
  expect_refused("", "line 1, column 1");
  expect_refused(std::string(100'000, '['), "line 1, column 100001");
  expect_refused("{\"name\": \"\xff\"}", "line 1, column");
  expect_refused(std::string(50'000, '[') + std::string(50'000, ']'), "nested too deep");
  expect_refused(std::string((1 << 20) + 1, ' '), "at most 1048576 bytes");
  expect_refused(replaced(example("chain"), "\"links\"", "\"name\": \"x\", \"links\""),
                 "the key 'name' twice");
}

TEST(PlanFiles, with_wrong_fields_are_refused_by_place) {
  const std::string chain = example("chain"), cube = example("cube");
  expect_refused("[]", "is no JSON object");
  expect_refused(replaced(chain, "\"name\": \"chain\",", ""), "name is missing");
  expect_refused(replaced(chain, "\"chain\"", "\"Chain!\""), "name must be 1 to 31 small letters");
  expect_refused(replaced(chain, "\"chain\"", "7"), "name must be a text");
  expect_refused(replaced(chain, "\"links\"", "\"link\""), "has the unknown key 'link'");
  expect_refused(replaced(chain, "\"messages\"", "\"tcp\""), "'node', 'messages' or 'both'");
  expect_refused(replaced(chain, "\"broadcast\"", "\"send\""), "collective must be");
  expect_refused(replaced(chain, "\"p >= 2\"", "\"p => 2\""), "ranks: 'p => 2' has no comparison");
  expect_refused(replaced(chain, "p >= 2", "p >= "), "ends where a number or a name must follow");
  expect_refused(replaced(cube, "\"slots\": 2", "\"slots\": 9"), "slots must be a whole number");
  expect_refused(replaced(cube, "\"slots\": 2", "\"slots\": 1e30"), "slots must be a whole number");
  expect_refused(replaced(cube, "\"slots\": 2", "\"slots\": 18446744073709551615"),
                 "slots must be a whole number");
  expect_refused(replaced(cube, "\"scratch_blocks\": 3", "\"scratch_blocks\": 100000"),
                 "scratch_blocks: '100000' is 100000 here, not 0..512");
  expect_refused(replaced(cube, "\"wide_scratch\": true", "\"wide_scratch\": 1"),
                 "wide_scratch must be true or false");
  expect_refused(replaced(cube, "\"slots\"", "\"varying\": true, \"slots\""), "equal counts");
  expect_refused(replaced(cube, "\"slots\"", "\"small_bytes\": 65537, \"slots\""),
                 "small_bytes: '65537' is 65537 here, not 0..65536");
  expect_refused(replaced(cube, "\"slots\"", "\"maps_input\": true, \"slots\""),
                 "arrives_first must be true");
  expect_refused(replaced(chain, "{\"copy\"", "{\"move\""),
                 "lanes[1] 'copy', step 0 must be an object with one of the keys");
  expect_refused(replaced(chain, "\"into\": \"out[0]\"", "\"into\": \"out\""),
                 "lanes[1] 'copy', step 0.into 'out' is no range");
  expect_refused(replaced(chain, ", \"into\": \"out[0]\"", ""), "lacks 'into'");
  expect_refused(replaced(chain, "\"to\"", "\"too\""), "has the unknown key 'too'");
  expect_refused(replaced(chain, "\"block\": 0, ", ""), "lanes[0] 'begin' must have both");
  expect_refused(replaced(chain, "r == root", "r == roof"), "lanes[0] 'begin'.when: 'r == roof'");
}

TEST(PlanFiles, with_formulas_that_give_no_index_are_refused_by_place_and_rank) {
  const std::string chain = example("chain");
  const auto with = [&](const std::string& formula) {
    return replaced(chain, "\"to\": \"(r + 1) mod p\"", "\"to\": \"" + formula + "\"");
  };
  expect_refused(with("i * j"), "'i * j' is no index: it multiplies i or j with i or j");
  expect_refused(with("i * i"), "rank 0 of 4, root 0");
  expect_refused(with("(i mod p) + 1"), "mod must be outermost");
  expect_refused(with("i / 2"), "divides i or j");
  expect_refused(with("r mod (p - 4)"), "mod of a number below 1");
  expect_refused(with("p / r"), "divides by a number below 1");
  expect_refused(with("2147483647 * p"), "a number that is too large");
  expect_refused(with("99999999999"), "a number that is too large");
  expect_refused(with("(r + 1"), "lacks a ')'");
  expect_refused(with("r + 1)"), "is not understood from ')' on");
  expect_refused(with(std::string(300, '(') + "r" + std::string(100, ')')), "400 characters");
  expect_refused(with("-1 xor r"), "xor of a negative number");
  expect_refused(replaced(chain, "\"p >= 2\"", "\"r >= 2\""), "does not serve 4 ranks");
  expect_refused(replaced(example("cube"), "\"to\": \"r xor 2\"", "\"to\": \"root\""),
                 "names the root, but there is none");
}

TEST(PlanFiles, that_the_verifier_refuses_are_refused_by_lane_and_step) {
  const std::string chain = example("chain"), cube = example("cube");
  expect_refused(replaced(cube, "{\"await\": \"send input\"},\n", ""),
                 "'cube', rank 1, lane 'second', step 2 (finish s[1] + s[2] -> out[0]");
  expect_refused(replaced(cube, "\"from\": \"r xor 1\"", "\"from\": \"r xor 2\""),
                 "'cube', rank 2, lane 'first', step 0 (recv 0 tag 0 -> s[0])");
  expect_refused(replaced(cube, "[\"s[2]w\", \"s[1]w\"]", "[\"s[2]w\"]"), "rank 2");
  expect_refused(replaced(cube, "\"fold\": [\"s[0]\", \"in[0]\"], \"into\": \"s[1]w\"",
                          "\"fold\": [\"s[0]\", \"in[0]\"], \"into\": \"s[1]\""),
                 "(4 ranks)");
  expect_refused(replaced(chain, "{\"await\": \"receive\"},\n", ""), "lane 'pass on', step 0");
  expect_refused(replaced(chain, "{\"await\": \"receive\"}", "{\"await\": \"recieve\"}"),
                 "names lane 'recieve', which this rank does not have");
  expect_refused(replaced(chain, "{\"await\": \"receive\"}", "{\"await\": 7}"),
                 "names lane 7 of 2");
  expect_refused(replaced(chain, "r - 1", "r - 2"), "root 0");
  expect_refused(replaced(chain, "r - 1", "r - 1 + root / 2"), "(4 ranks, root 2)");
}

TEST(PlanFiles, serve_only_the_numbers_of_ranks_that_they_name) {
  expect_refused(example("cube"), "does not serve 3 ranks", 3);
  expect_refused(example("chain"), "does not serve 1 ranks", 1);
  expect_refused(example("chain"), "it is not 2..64", 65);
}

TEST(PlanFiles, for_several_nodes_serve_only_the_layouts_that_they_name) {
  const std::string rails = example("rails");
  const Layout uneven = layout_of({3, 1}), one = layout_of({4}), twos = layout_of({2, 2});
  const std::uint32_t in_turn[] = {0, 1, 0, 1};
  const Layout turns(in_turn);
  expect_refused(rails, "on nodes of 3+1: 'ranks' or 'layout' excludes them", 4, &uneven);
  expect_refused(rails, "there is one node", 4, &one);
  expect_refused(rails, "on nodes of 2+2", 4, &turns);
  expect_refused(rails, "on nodes of unknown size");
  expect_refused(replaced(rails, "k >= 2", "k >= 3"), "on nodes of 2+2", 4, &twos);
  const std::string listed = replaced(rails, "\"slots\"", "\"layout\": [5, 5, 2, 2], \"slots\"");
  EXPECT_EQ("", refusal(listed, twos));
  expect_refused(listed, "on nodes of 2+2", 4, &turns);
  const Layout threes = layout_of({3, 3});
  expect_refused(listed, "on nodes of 3+3", 6, &threes);
}

TEST(PlanFiles, for_several_nodes_are_refused_by_place) {
  const std::string rails = example("rails");
  const Layout twos = layout_of({2, 2});
  const auto refused = [&](const std::string& from, const std::string& to, const char* part) {
    expect_refused(replaced(rails, from, to), part, 4, &twos);
  };
  refused("\"slots\"", "\"layout\": 4, \"slots\"", "layout must be a list of 1 to 64 numbers");
  refused("\"slots\"", "\"layout\": [0, 64], \"slots\"", "layout must be a whole number, 0 to 63");
  refused("\"slots\"", "\"maps_input\": true, \"slots\"", "links must be 'node' where buffers");
  refused("\"await\": \"unpack\"", "\"await\": \"stage\"", "scratch block 1");
  refused("{\"wait\": 1, \"of\": \"all\", \"back\": 4},\n      {\"copy\"", "{\"copy\"",
          "scratch block 0");
  refused("s[j]@i", "s[j]@(i + 1)", "lane 'lower', step 1");
  const std::string chain = example("chain");
  expect_refused(replaced(chain, "\"lanes\"", "\"layout\": [0, 1], \"lanes\""),
                 "layout is only for links 'both'");
  expect_refused(replaced(chain, "(r + 1) mod p", "(r + k) mod p"),
                 "names n or k, which are only for links 'both'");
}

TEST(PlanFiles, take_no_name_that_is_taken) {
  expect_refused(replaced(example("chain"), "\"chain\"", "\"tree\""), "of a built-in algorithm");
  PlanFile file;
  ASSERT_TRUE(read_plan(example("chain"), "my.json", &file).ok());
  LoadedPlans plans;
  std::shared_ptr<const LoadedPlan> plan;
  ASSERT_TRUE(plans.verify(file, 3, &plan).ok());
  plans.add(plan);
  const std::string loaded =
      ": plan 'chain': a plan of this name, collective and links is loaded already, from ";
  file.source = "other.json";
  EXPECT_EQ("other.json" + loaded + "my.json of HOCKET_PLAN_FILES",
            plans.verify(file, 3, &plan).message());
  ASSERT_TRUE(
      read_plan(replaced(example("chain"), "A broadcast", "It goes"), given_text, &file).ok());
  EXPECT_EQ(given_text + loaded + "my.json of HOCKET_PLAN_FILES: give this plan another name",
            plans.verify(file, 3, &plan).message());
}

/// Built-in plans as a user's plan of another name.
std::string renamed(const Builder& builder, const Group& group) {
  return replaced(write_json(plans_for_all_roots(builder, group), builder.varying), "\"name\": \"",
                  "\"name\": \"my-");
}

std::string renamed(const char* algorithm, Collective collective) {
  for (const Builder& builder : builders()) {
    if (builder.collective != collective || std::string(algorithm) != builder.algorithm) continue;
    return renamed(builder, {.ranks = 4, .widened = true});
  }
  ADD_FAILURE() << algorithm;
  return {};
}

constexpr const char* one_folds_all =
    R"({"name": "one", "collective": "all-reduce", "ranks": "p >= 2", "links": "node",
        "arrives_first": true, "maps_input": true, "maps_output": true, "lanes": [
        {"name": "fold", "when": "r == 0", "of": "input", "block": 0, "steps": [
          {"finish": "in[0]@j{j<p}", "into": "out[0]@j{j<p}"}]},
        {"name": "done", "when": "r == 0", "publishes": 3, "steps": [{"await_end": "fold"}]},
        {"name": "exit", "when": "r != 0", "steps": [{"wait": 3, "of": 0}]}]})";

TEST(PlanFiles, of_built_in_plans_for_several_nodes_are_verified) {
  const Layout layout = layout_of({3, 1});
  for (const Builder& builder : layout_builders()) {
    const bool widened = row_of(builder.collective).reduces;
    EXPECT_EQ(
        "", refusal(renamed(builder, {.ranks = 4, .widened = widened, .layout = &layout}), layout))
        << name_of(builder);
  }
}

/// Where a buffer is not mapped, `staged` runs with blocks and chunks of its own.
TEST(PlanFiles, that_map_buffers_have_any_blocks_and_chunks) {
  const std::string direct = renamed("direct", Collective::all_reduce);
  EXPECT_EQ("", refusal(direct, 4));
  EXPECT_EQ("", refusal(renamed("direct", Collective::all_gather), 4));
  // Rank 0 folds everything: one block.
  EXPECT_EQ("", refusal(one_folds_all, 4));
  const std::string cut = "\"cut\": \"p\"";
  EXPECT_EQ("", refusal(replaced(direct, cut, cut + ", \"scratch_blocks\": 1"), 4));
  EXPECT_EQ("", refusal(replaced(direct, cut, cut + ", \"single_chunk\": true"), 4));
}

TEST(PlanFiles, that_would_take_too_long_to_verify_are_refused) {
  const auto with = [](const std::string& keys, const std::string& sources) {
    const std::string text = replaced(example("chain"), "\"name\": \"copy\"", keys);
    return replaced(text, "\"copy\": \"in[0]\"", "\"fold\": \"in[0]" + sources + "\"");
  };
  const std::string name = "\"name\": \"copy\", \"instances\": ";
  expect_refused(with(name + "20000", ""), "'20000' is 20000 here, not 0..16384");
  expect_refused(with(name + "10000, \"window\": 1", "{j<10}"),
                 "name more than 16384 ranges: that is too much to be verified");
  expect_refused(with(name + "1000, \"window\": 1", "{j<10}"), "name more than 2048 ranges", 64);
  expect_refused(with(name + "400", ""), "lanes[1] 'copy': more than 320 instances");
  expect_refused(with(name + "2", "{j<1000000}"), "'1000000' is 1000000 here, not 0..16384");
}

TEST(PlanFiles, have_hashes_of_their_content) {
  const auto hash = [](const std::string& text) {
    PlanFile file;
    EXPECT_TRUE(read_plan(text, "text", &file).ok());
    return file.hash;
  };
  const std::string chain = example("chain");
  EXPECT_EQ(hash(chain),
            hash(replaced(chain, "\"links\": \"messages\"", "\"links\":\n\"messages\"")));
  EXPECT_NE(hash(chain), hash(replaced(chain, "p >= 2", "p >= 3")));
}

/// The characters of plans, and a few others.
std::string mutated(std::string text, const std::string& other, std::mt19937_64& random) {
  static const std::string pieces[] = {
      "0",    "1",    "-1", "\"",   "{", "}", "[",   "]",     ",",         ":",   "mod",
      "xor",  "r",    "p",  "i",    "j", "w", "@",   "{j<3}", "999999999", "1e9", "null",
      "true", "root", "\\", "\xc3", "(", ")", "and", "in",    "/",         "*"};
  for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
    const std::size_t at = random() % (text.size() + 1);
    const std::size_t length = std::min<std::size_t>(random() % 8, text.size() - at);
    switch (random() % 4) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, pieces[random() % std::size(pieces)]);
        break;
      case 2:
        text.replace(at, length, pieces[random() % std::size(pieces)]);
        break;
      default: {
        const std::size_t from = random() % other.size();
        text.insert(at, other.substr(from, random() % 60));
        break;
      }
    }
  }
  return text;
}

/// What random changes make of a file is refused with a reason, or verified; nothing crashes.
TEST(PlanFiles, that_are_damaged_at_random_are_refused_with_a_reason_or_verified) {
  std::mt19937_64 random(tests::seed());
  std::vector<std::string> texts = {example("cube"), example("chain"), example("rails")};
  const Layout layout = layout_of({2, 2});
  for (const Builder& builder : group_builders()) {
    const std::string text = replaced(
        write_json(plans_for_all_roots(builder, {.ranks = 4, .widened = true}), builder.varying),
        "\"name\": \"", "\"name\": \"x");
    if (builder.medium == Medium::node || builder.collective == Collective::all_reduce)
      texts.push_back(text);
  }
  const int some = tests::sanitized ? 2'500 : 10'000;
  const int rounds = std::getenv("LONG_TESTS") != nullptr ? 400'000 : some;
  int verified = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string text =
        mutated(texts[random() % texts.size()], texts[random() % texts.size()], random);
    const std::string said = refusal(text, layout);
    if (said.empty()) {
      ++verified;
    } else {
      ASSERT_TRUE(said.starts_with("my.json: ")) << said;
    }
  }
  EXPECT_GT(verified, 0) << "some changes change nothing, as those of white space";
  EXPECT_LT(verified, rounds / 2);
}

TEST(PlanFiles, are_candidates_of_the_selector_and_can_be_forced) {
  PlanFile file;
  ASSERT_TRUE(read_plan(example("cube"), "my.json", &file).ok());
  std::shared_ptr<const LoadedPlan> plan;
  ASSERT_TRUE(LoadedPlans().verify(file, 4, &plan).ok());
  SelectorOptions options;
  options.ranks = 4;
  options.one_node = false;
  options.loaded.add(plan);
  const CallKey key{.collective = Collective::all_reduce, .dtype = Dtype::float16, .count = 4096};
  const auto algorithm_of = [&](const SelectorOptions& with) {
    Selector selector(with);
    const Selection* selection = nullptr;
    EXPECT_TRUE(selector.select(key, &selection).ok());
    return selection->program->algorithm();
  };
  // Messages that cost much work: four sends and receives are better than six. With 4 ranks
  // recursive doubling has the same steps, so only the order of the candidates decides.
  options.figures.message_overhead_ns = 100'000;
  options.figures.message_ns = 1'000;
  Selector selector(options);
  std::vector<Selector::Priced> priced;
  ASSERT_TRUE(selector.candidates(key, &priced).ok());
  const auto cube = std::ranges::find(priced, std::string("cube"), [](const auto& candidate) {
    return std::string(candidate.builder->algorithm);
  });
  ASSERT_NE(cube, priced.end());
  EXPECT_EQ(cube->price_ps, priced.front().price_ps);
  EXPECT_GT(cube->price_ps, 0);
  options.figures.link_ns_per_byte = 1000;
  EXPECT_NE("cube", algorithm_of(options)) << "it moves whole messages";
  options.algorithm = "cube";
  EXPECT_EQ("cube", algorithm_of(options));
  options.deterministic = true;
  EXPECT_NE("cube", algorithm_of(options)) << "it does not fold in the order of ranks";
}

/// The plans of a user are priced for all their ranks, on the nodes for which they were verified.
TEST(PlanFiles, of_many_ranks_and_of_several_nodes_are_priced) {
  const auto layout = std::make_shared<const Layout>(layout_of({3, 1}));
  const Builder &ring = *find_builder("ring", Collective::all_gather, Medium::messages),
                &tree = *find_builder("tree", Collective::broadcast, Medium::messages),
                &levels = *find_builder("two-level", Collective::all_gather, Medium::both);
  const auto prices = [](const Builder& builder, const Group& group,
                         const std::shared_ptr<const Layout>& nodes) {
    PlanFile file;
    EXPECT_TRUE(read_plan(renamed(builder, group), "my.json", &file).ok());
    std::shared_ptr<const LoadedPlan> plan;
    const Status verified = LoadedPlans().verify(file, group.ranks, &plan, nodes.get());
    EXPECT_TRUE(verified.ok()) << verified.message();
    SelectorOptions options;
    options.ranks = static_cast<int>(group.ranks);
    options.one_node = false;
    options.layout = nodes;
    options.board_scratch_bytes = 4 << 20;
    options.loaded.add(plan);
    Selector selector(options);
    std::vector<Selector::Priced> priced;
    const int root = row_of(builder.collective).rooted ? 0 : -1;
    EXPECT_TRUE(selector
                    .candidates({.collective = builder.collective,
                                 .dtype = Dtype::float32,
                                 .root = root,
                                 .count = 100},
                                &priced)
                    .ok());
    std::vector<double> found;
    for (const std::string& name : {std::string(builder.algorithm), file.name}) {
      for (const Selector::Priced& candidate : priced) {
        if (candidate.builder->algorithm == name) {
          found.push_back(static_cast<double>(candidate.price_ps));
        }
      }
    }
    EXPECT_EQ(found.size(), 2U);
    return found;
  };
  const std::vector<double> of_ring = prices(ring, {.ranks = 64}, nullptr);
  EXPECT_NEAR(of_ring[1] / of_ring[0], 1, 0.1);
  const std::vector<double> of_tree = prices(tree, {.ranks = 8}, nullptr);
  EXPECT_EQ(of_tree[1], of_tree[0]) << "all ranks of both are simulated";
  const std::vector<double> of_levels =
      prices(levels, {.ranks = 4, .layout = layout.get()}, layout);
  EXPECT_NEAR(of_levels[1] / of_levels[0], 1, 0.5) << "the built-in plan stands on even nodes";
}

TEST(PlanFiles, that_are_added_later_change_the_choice) {
  PlanFile file;
  ASSERT_TRUE(read_plan(example("cube"), "my.json", &file).ok());
  std::shared_ptr<const LoadedPlan> plan;
  ASSERT_TRUE(LoadedPlans().verify(file, 4, &plan).ok());
  for (const char* const environment : {"", "ring"}) {
    SelectorOptions options;
    options.ranks = 4;
    options.one_node = false;
    options.algorithm = environment;
    Selector selector(options);
    const CallKey key{
        .collective = Collective::all_reduce, .dtype = Dtype::int32, .count = 1 << 20};
    const Selection* selection = nullptr;
    ASSERT_TRUE(selector.select(key, &selection).ok());
    EXPECT_NE("cube", selection->program->algorithm());
    selector.add(plan, true);
    ASSERT_TRUE(selector.select(key, &selection).ok());
    EXPECT_EQ(*environment != '\0' ? environment : "cube", selection->program->algorithm());
  }
}

}  // namespace
}  // namespace hocket::internal
