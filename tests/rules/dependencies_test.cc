// Dependencies point downward only: a module includes itself and modules below it.
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "rules/tree.h"

namespace rules {
namespace {

const std::map<std::string, int> level_of = {
    {"base", 1},   {"heap", 1},     {"memory", 2},    {"transport", 3},
    {"reduce", 3}, {"topology", 3}, {"bootstrap", 3}, {"collectives", 4},
    {"engine", 5}, {"api", 6},      {"training", 7},
};

/// Inside a module: its folders, and its own files (under the module's name, or each under its
/// own).
const std::map<std::string, int> inner_level_of = {
    {"bootstrap/types.h", 1},   {"bootstrap/net", 2},      {"bootstrap/auth", 3},
    {"bootstrap/control", 4},   {"bootstrap/join", 5},     {"bootstrap/launchers", 6},
    {"bootstrap", 7},           {"collectives/plan", 1},   {"collectives/algorithms", 2},
    {"collectives/execute", 2}, {"collectives/verify", 2}, {"collectives/select", 3},
    {"transport", 1},           {"transport/self", 2},     {"transport/shm", 2},
    {"transport/tcp", 2},       {"training", 1},           {"training/torch", 2},
};

std::string folder(const std::string& path, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth; ++i) end = path.find('/', end + (i > 0));
  return end == std::string::npos ? "" : path.substr(0, end);
}

/// The part of a module that a file belongs to.
std::string part(const std::string& path) {
  if (inner_level_of.contains(path)) return path;
  const std::string inner = folder(path, 2);
  return inner.empty() ? folder(path, 1) : inner;
}

/// What is wrong with `#include "included"` in src/`includer`; empty: nothing.
std::string wrong(const std::string& includer, const std::string& included) {
  const std::string from = folder(includer, 1), to = folder(included, 1);
  if (!level_of.contains(from))
    return "src/" + from + " is no module: give it a level in this test";
  if (to == "hwy") return "";  // Highway's way: its headers are included again for every target
  if (to == "hocket") return from == "api" ? "" : "only src/api knows the public header";
  if (!level_of.contains(to)) return "name files from src on: " + included;
  if (from == "training" && to != from) return "src/training uses <hocket/hocket.hpp> only";
  if (from != to) {
    return level_of.at(to) < level_of.at(from) ? "" : from + " may not include " + to;
  }
  const std::string from_part = part(includer), to_part = part(included);
  if (from_part == to_part) return "";
  for (const std::string& part : {from_part, to_part}) {
    if (!inner_level_of.contains(part)) return part + " has no level in this test";
  }
  if (inner_level_of.at(to_part) < inner_level_of.at(from_part)) return "";
  return from_part + " may not include " + to_part;
}

Complaints check(const File& file) {
  static const std::regex include("^\\s*#\\s*include\\s+\"([^\"]+)\"");
  Complaints complaints;
  std::size_t number = 0;
  for (const std::string& line : lines_of(file.text)) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    const std::string what = wrong(file.path.substr(4), match[1]);
    if (!what.empty()) complaints.push_back(at(file.path, number, what));
  }
  return complaints;
}

TEST(Rules, an_upward_include_is_found) {
  const struct {
    const char* path;
    const char* include;
    bool allowed;
  } cases[] = {
      {"src/base/a.h", "base/b.h", true},
      {"src/base/a.h", "memory/b.h", false},
      {"src/engine/a.cc", "collectives/plan/plan.h", true},
      {"src/collectives/plan/a.cc", "engine/engine.h", false},
      {"src/transport/tcp/a.cc", "bootstrap/session.h", false},
      {"src/transport/tcp/a.cc", "transport/transport.h", true},
      {"src/transport/tcp/a.cc", "transport/tcp/frame.h", true},
      {"src/transport/tcp/a.cc", "transport/shm/board.h", false},
      {"src/api/a.cc", "hocket/hocket.h", true},
      {"src/engine/a.cc", "hocket/hocket.h", false},
      {"src/reduce/a.cc", "hwy/highway.h", true},
      {"src/engine/a.cc", "plan.h", false},
      {"src/attic/a.cc", "base/b.h", false},
      {"src/bootstrap/net/a.cc", "bootstrap/types.h", true},
      {"src/bootstrap/net/a.cc", "bootstrap/session.h", false},
      {"src/bootstrap/control/a.cc", "bootstrap/join/b.h", false},
      {"src/bootstrap/a.cc", "bootstrap/join/b.h", true},
      {"src/collectives/select/a.cc", "collectives/algorithms/b.h", true},
      {"src/collectives/verify/a.cc", "collectives/execute/b.h", false},
      {"src/base/inner/a.cc", "base/b.h", false},
      {"src/training/a.cc", "training/b.h", true},
      {"src/training/a.cc", "engine/b.h", false},
      {"src/training/a.cc", "training/torch/b.h", false},
      {"src/training/torch/a.cc", "training/b.h", true},
      {"src/engine/a.cc", "training/b.h", false},
  };
  for (const auto& test : cases) {
    const std::string text = "#pragma once\n#include \"" + std::string(test.include) + "\"\n";
    EXPECT_EQ(check({test.path, text}).empty(), test.allowed) << test.path << test.include;
  }
}

TEST(Rules, dependencies_point_downward) {
  Complaints complaints;
  int seen = 0;
  for (const File& file : files()) {
    if (!file.path.starts_with("src/") || !is_source(file.path)) continue;
    ++seen;
    for (const std::string& complaint : check(file)) complaints.push_back(complaint);
  }
  EXPECT_GT(seen, 10);
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
