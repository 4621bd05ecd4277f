// Arrows point downward only: a room includes itself and rooms below.
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "rules/tree.h"

namespace rules {
namespace {

const std::map<std::string, int> level_of = {
    {"base", 1},      {"memory", 2},      {"transport", 3}, {"reduce", 3}, {"topology", 3},
    {"bootstrap", 3}, {"collectives", 4}, {"engine", 5},    {"api", 6},
};

std::string folder(const std::string& path, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth; ++i) end = path.find('/', end + (i > 0));
  return end == std::string::npos ? "" : path.substr(0, end);
}

/// What is wrong with `#include "included"` in src/`includer`; empty: nothing.
std::string wrong(const std::string& includer, const std::string& included) {
  const std::string from = folder(includer, 1), to = folder(included, 1);
  if (!level_of.contains(from)) return "src/" + from + " is no room: give it a level in this test";
  if (to == "hwy") return "";  // Highway's way: its headers are included again for every target
  if (to == "hocket") return from == "api" ? "" : "only src/api knows the public header";
  if (!level_of.contains(to)) return "name files from src on: " + included;
  if (from != to) {
    return level_of.at(to) < level_of.at(from) ? "" : from + " may not include " + to;
  }
  // transport/shm and transport/tcp are neighbours that know only what lies in transport itself.
  const std::string from_inner = folder(includer, 2), to_inner = folder(included, 2);
  if (from_inner != to_inner && !to_inner.empty())
    return from_inner + " may not include " + to_inner;
  return "";
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
      {"src/collectives/a.cc", "engine/engine.h", false},
      {"src/transport/tcp/a.cc", "bootstrap/session.h", false},
      {"src/transport/tcp/a.cc", "transport/transport.h", true},
      {"src/transport/tcp/a.cc", "transport/tcp/frame.h", true},
      {"src/transport/tcp/a.cc", "transport/shm/board.h", false},
      {"src/api/a.cc", "hocket/hocket.h", true},
      {"src/engine/a.cc", "hocket/hocket.h", false},
      {"src/reduce/a.cc", "hwy/highway.h", true},
      {"src/engine/a.cc", "plan.h", false},
      {"src/attic/a.cc", "base/b.h", false},
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
