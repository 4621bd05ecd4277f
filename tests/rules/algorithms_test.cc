// Each algorithm of the library names its source, and no code outside the folder of the algorithms
// compares an algorithm by its name: properties of an algorithm are columns of the table in
// src/collectives/algorithms/registry.cc, or follow from the plan.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "rules/tree.h"

namespace rules {
namespace {

const std::string folder = "src/collectives/algorithms/";

std::string registry() { return read(root() / (folder + "registry.cc")); }

/// The first group of all matches.
std::set<std::string> all_of(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    found.insert(it->str(1));
  }
  return found;
}

/// The functions of the rows of a table, and the names of the algorithms.
std::set<std::string> functions(const std::string& table) {
  return all_of(table, std::regex("\\balgorithms::(\\w+)\\}"));
}
std::set<std::string> names(const std::string& table) {
  return all_of(table, std::regex("\\{\"([\\w-]+)\", "));
}

/// Those of the functions that a file defines.
std::set<std::string> defined(const File& file, const std::set<std::string>& functions) {
  std::set<std::string> found;
  const std::regex definition("\\bvoid (\\w+)\\(Plan& plan, const Shape&[^)]*\\) \\{");
  for (const std::string& name : all_of(code_of(file.text), definition)) {
    if (functions.contains(name)) found.insert(name);
  }
  return found;
}

/// True if the comment at the beginning of a file has a line that begins with "Source: ".
bool names_source(const File& file) {
  for (const std::string& line : lines_of(file.text)) {
    if (!line.starts_with("//")) return false;
    if (line.starts_with("// Source: ")) return true;
  }
  return false;
}

TEST(Rules, an_algorithm_without_a_source_is_found) {
  const std::string code = "#include \"a.h\"\nvoid ring(Plan& plan, const Shape& shape) {}\n";
  const std::set<std::string> ring = functions("{\"ring\", x, algorithms::ring},\n");
  ASSERT_EQ(ring, std::set<std::string>{"ring"});
  EXPECT_EQ(defined({"", code}, ring), ring);
  EXPECT_TRUE(defined({"", "// void ring(Plan& plan, const Shape& shape) {\n"}, ring).empty());
  EXPECT_TRUE(names_source({"", "// ring: ...\n//\n// Source: Ann (2009).\n" + code}));
  EXPECT_FALSE(names_source({"", "// ring: ...\n// Ann (2009).\n" + code}));
  EXPECT_FALSE(names_source({"", code + "// Source: Ann (2009).\n"}));
}

TEST(Rules, each_algorithm_names_its_source) {
  const std::set<std::string> registered = functions(registry());
  ASSERT_LT(40u, registered.size());
  std::set<std::string> missing = registered;
  Complaints complaints;
  for (const File& file : files()) {
    if (!file.path.starts_with(folder) || !file.path.ends_with(".cc")) continue;
    const std::set<std::string> here = defined(file, registered);
    for (const std::string& name : here) missing.erase(name);
    if (!here.empty() && !names_source(file)) {
      complaints.push_back(file.path + ": the comment at the beginning has no line '// Source: '");
    }
  }
  for (const std::string& name : missing)
    complaints.push_back("no file of " + folder + ": " + name);
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

/// True if a literal whose ends are given is compared with something.
bool is_compared(const std::string& code, std::size_t begin, std::size_t end) {
  const auto is = [&](std::size_t at, std::string_view what) {
    return std::string_view(code).substr(at).starts_with(what);
  };
  const std::size_t last = begin == 0 ? std::string::npos : code.find_last_not_of(" \n", begin - 1);
  if (last == std::string::npos) return false;
  const std::size_t next = std::min(code.find_first_not_of(" \n", end), code.size());
  if (is(next, "==") || is(next, "!=")) return true;
  if (last > 0 && (is(last - 1, "==") || is(last - 1, "!="))) return true;
  const std::size_t from = code.find_last_of(";{}", last) + 1;
  const std::string statement = code.substr(from, last + 1 - from);
  for (const char* call : {"strcmp(", "strncmp(", "compare(", "starts_with("}) {
    if (statement.find(call) != std::string::npos) return true;
  }
  return false;
}

/// Adds the places in a file that compare the algorithm of a plan with a name, or anything with the
/// name of an algorithm. Two values of the setting may be compared, as of two ranks.
void add_comparisons(const File& file, const std::set<std::string>& names, Complaints* complaints) {
  static const std::regex member(
      "(\\w+)(?:\\(\\))?(?:\\.|->)algorithm(?:\\(\\))?\\)*\\s*[!=]=|"
      "[!=]=\\s*(?:[\\w:]+\\()*(?:\\w+(?:\\(\\))?(?:\\.|->))*(\\w+)(?:\\(\\))?(?:\\.|->)"
      "algorithm\\b|"
      "\\bstrn?cmp\\((\\w+)(?:\\.|->)algorithm\\b");
  static const std::set<std::string> settings = {"options_", "settings", "mine", "theirs"};
  const std::string code = code_of(file.text);
  const auto add = [&](std::size_t position, const std::string& what) {
    const auto end = code.begin() + static_cast<std::ptrdiff_t>(position);
    const auto line = 1 + std::count(code.begin(), end, '\n');
    complaints->push_back(at(file.path, static_cast<std::size_t>(line), what));
  };
  if (code.find("algorithm") != std::string::npos) {  // a search by a regex takes long
    for (std::sregex_iterator it(code.begin(), code.end(), member), end; it != end; ++it) {
      if (settings.contains(it->str(1) + it->str(2) + it->str(3))) continue;
      add(static_cast<std::size_t>(it->position()), it->str());
    }
  }
  for (const std::string& name : names) {
    const std::string quoted = '"' + name + '"';
    for (std::size_t from = 0; (from = file.text.find(quoted, from)) != std::string::npos;) {
      const std::size_t end = from + quoted.size();
      if (is_compared(code, from, end)) add(from, quoted);
      from = end;
    }
  }
}

TEST(Rules, a_comparison_by_the_name_of_an_algorithm_is_found) {
  const struct {
    const char* text;
    bool allowed;
  } cases[] = {
      {"if (name == \"ring\") f();", false},
      {"if (\"ring\" != name) f();", false},
      {"if (std::strcmp(name, \"ring\") == 0) f();", false},
      {"if (plan.algorithm == name) f();", false},
      {"if (std::string_view(builder->algorithm) ==\n    name) f();", false},
      {"return name == candidate.builder->algorithm;", false},
      {"return name == program().algorithm();", false},
      {"return std::strcmp(plan.algorithm, name) == 0;", false},
      {"if (name == \"sum\") f();", true},
      {"// if (name == \"ring\")\n", true},
      {"find_builder(\"ring\", collective, medium);", true},
      {"if (algorithm == options_.algorithm) return;", true},
      {"plan.algorithm = name;", true},
      {"builder.is_named(settings.algorithm);", true},
  };
  for (const auto& test : cases) {
    Complaints complaints;
    add_comparisons({"a.cc", test.text}, {"ring"}, &complaints);
    EXPECT_EQ(complaints.empty(), test.allowed) << test.text;
  }
}

// Programs that measure compare what hocketCommLastAlgorithm() returns, as a user's program may.
TEST(Rules, no_algorithm_is_compared_by_its_name) {
  const std::set<std::string> all = names(registry());
  EXPECT_LT(15u, all.size());
  Complaints complaints;
  for (const File& file : files()) {
    const bool is_checked = file.path.starts_with("src/") || file.path.starts_with("tools/");
    if (!is_checked || !is_source(file.path) || file.path.starts_with(folder)) continue;
    add_comparisons(file, all, &complaints);
  }
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
