// Checks the documentation against the sources: every call of the C headers has its five lines,
// every setting is in the header's table, every promise of docs/PROMISES.md names a test that
// exists, docs/NCCL.md says which calls are here, and README shows the first example.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "rules/tree.h"

namespace rules {
namespace {

std::string text_of(const std::string& path) {
  for (const File& file : files()) {
    if (file.path == path) return file.text;
  }
  ADD_FAILURE() << path << " does not exist";
  return "";
}

/// The comment above a call. Calls that are declared in adjacent lines share the comment above the
/// first of them, if it names each of the others.
std::string comment_of(const std::string& header, std::size_t place, const std::string& call) {
  const std::size_t end = header.rfind("*/", place);
  const std::size_t start = header.rfind("/*", end);
  if (end == std::string::npos || start == std::string::npos) return "";
  const std::string comment = header.substr(start, end - start);
  const std::string between = header.substr(end + 2, place - end - 2);
  if (between.empty()) return comment;
  const bool adjacent = between.starts_with("\nHOCKET_API ") && between.ends_with(';') &&
                        between.find("\n\n") == std::string::npos;
  return adjacent && comment.find(call) != std::string::npos ? comment : "";
}

/// Calls whose comment lacks one of the five lines, or has them in another order.
Complaints undocumented(const std::string& header) {
  static const std::regex lines(
      "Effect: +\\S[^]*\\* Needs: +\\S[^]*\\* Blocks: +\\S[^]*\\* Threads: +\\S[^]*\\* Errors: "
      "+\\S");
  static const std::regex call("\nHOCKET_API [^(]*?(hocket\\w+)\\(");
  Complaints complaints;
  for (std::sregex_iterator i(header.begin(), header.end(), call), end; i != end; ++i) {
    const std::string comment =
        comment_of(header, static_cast<std::size_t>(i->position()), (*i)[1]);
    if (!std::regex_search(comment, lines)) complaints.push_back((*i)[1]);
  }
  return complaints;
}

TEST(Rules, a_call_without_its_five_lines_is_found) {
  const std::string good =
      "/* Effect:  a.\n * Needs:   b.\n * Blocks:  c.\n * Threads: d.\n * Errors:  e. */\n"
      "HOCKET_API int hocketA(int a);\n";
  EXPECT_TRUE(undocumented("\n" + good).empty());
  for (const char* label : {"Effect", "Needs", "Blocks", "Threads", "Errors"}) {
    std::string bad = "\n" + good;
    bad.replace(bad.find(label), std::string(label).size(), "Other");
    EXPECT_EQ(undocumented(bad), Complaints{"hocketA"}) << label;
  }
  EXPECT_EQ(undocumented("\n" + good + "HOCKET_API int hocketB(void);\n"), Complaints{"hocketB"});

  const std::string second = "HOCKET_API int hocketB(int a,\n int b);\n";
  const std::string third = "HOCKET_API int hocketC(void);\n";
  const std::string both = "/* Effect:  hocketB: a. hocketC: a.\n" + good.substr(good.find(" * N"));
  EXPECT_TRUE(undocumented("\n" + both + second + third).empty());
  EXPECT_EQ(undocumented("\n" + both + second + "\n" + third), Complaints{"hocketC"});
  EXPECT_EQ(undocumented("\n" + both + "#define B\n" + second), Complaints{"hocketB"});
}

TEST(Rules, every_call_has_its_five_lines) {
  for (const auto& [path, call] : {std::pair{"include/hocket/hocket.h", "hocketGroupStart("},
                                   {"include/hocket/communicators.h", "hocketCommSplit("},
                                   {"include/hocket/collectives.h", "hocketAllReduce("},
                                   {"include/hocket/operators.h", "hocketRedOpDestroy("}}) {
    const std::string header = text_of(path);
    const Complaints complaints = undocumented(header);
    EXPECT_TRUE(complaints.empty()) << join(complaints);
    EXPECT_NE(header.find(call), std::string::npos);
  }
}

std::set<std::string> settings_in(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i) {
    found.insert((*i)[1]);
  }
  return found;
}

TEST(Rules, the_header_lists_the_settings_that_the_library_knows) {
  const auto known =
      settings_in(text_of("src/base/settings.cc"), std::regex("\\{\\{\"(HOCKET_[A-Z_]+)\""));
  const auto listed =
      settings_in(text_of("include/hocket/hocket.h"), std::regex("\n \\*   (HOCKET_[A-Z_]+) "));
  EXPECT_FALSE(known.empty());
  EXPECT_EQ(known, listed);
}

/// Promises whose last column names no test, or one that is not there. A test is `Suite.case`, or
/// the path of a script.
Complaints unproven(const std::string& promises, const std::set<std::string>& tests) {
  static const std::regex row("^\\|([^|]*)\\|(?:[^|]*\\|)*?([^|]*)\\|\\s*$");
  static const std::regex name("`([^`]+)`");
  Complaints complaints;
  for (const std::string& line : lines_of(promises)) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    const std::string promise = match[1], proof = match[2];
    if (promise.find("---") != std::string::npos || proof.find("Test") != std::string::npos)
      continue;
    const auto named = settings_in(proof, name);
    if (named.empty()) complaints.push_back("no test:" + promise);
    for (const std::string& test : named) {
      if (!tests.contains(test)) complaints.push_back("no such test: " + test + " for" + promise);
    }
  }
  return complaints;
}

TEST(Rules, a_promise_without_a_test_is_found) {
  const std::string head = "| Promise | Test |\n|---|---|\n";
  EXPECT_TRUE(unproven(head + "| a | `S.b` |\n", {"S.b"}).empty());
  EXPECT_TRUE(unproven(head + "| a | `S.b`, `S.c` |\n", {"S.b", "S.c"}).empty());
  EXPECT_FALSE(unproven(head + "| a | |\n", {"S.b"}).empty());
  EXPECT_FALSE(unproven(head + "| a | `S.other` |\n", {"S.b"}).empty());
}

TEST(Rules, every_promise_names_a_test_that_exists) {
  static const std::regex macro("\\bTEST(?:_F|_P)?\\(\\s*(\\w+),\\s*(\\w+)\\s*\\)");
  std::set<std::string> tests;
  for (const File& file : files()) {
    if (!file.path.starts_with("tests/") && !file.path.starts_with("examples/")) continue;
    tests.insert(file.path);
    for (std::sregex_iterator i(file.text.begin(), file.text.end(), macro), end; i != end; ++i) {
      tests.insert((*i)[1].str() + "." + (*i)[2].str());
    }
  }
  const Complaints complaints = unproven(text_of("docs/PROMISES.md"), tests);
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

/// What docs/NCCL.md says wrongly: a call that is here or not, or a call that it does not have.
/// calls: those of hocket's headers.
Complaints untrue(const std::string& table, const std::set<std::string>& calls) {
  static const std::regex row("^\\|([^|]*)\\| (same|differs|later|no) \\|[^|]*\\|$");
  static const std::regex nccl("`nccl(\\w+)`"), own("`(hocket\\w+)`");
  Complaints complaints;
  std::set<std::string> here;  // as hocket calls them
  const std::size_t only = table.find("## Only in hocket");
  for (const std::string& line : lines_of(table.substr(0, only))) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    const bool said = match[2] == "same" || match[2] == "differs";
    for (const std::string& name : settings_in(match[1], nccl)) {
      const std::string call = "hocket" + name;
      if (said != calls.contains(call)) complaints.push_back(call + " is not " + match[2].str());
      if (said && !here.insert(call).second) complaints.push_back(call + " twice");
    }
  }
  const std::set<std::string> others =
      only == std::string::npos ? std::set<std::string>() : settings_in(table.substr(only), own);
  for (const std::string& call : others) {
    if (!calls.contains(call)) complaints.push_back(call + " does not exist");
    if (here.contains(call)) complaints.push_back(call + " is NCCL's too");
  }
  for (const std::string& call : calls) {
    if (!here.contains(call) && !others.contains(call)) complaints.push_back(call + " is missing");
  }
  return complaints;
}

TEST(Rules, a_wrong_table_of_nccl_calls_is_found) {
  const std::string table =
      "| `ncclA`, `ncclB` | same |  |\n| `ncclC` | later | x |\n## Only in hocket\n| `hocketD` |\n";
  EXPECT_TRUE(untrue(table, {"hocketA", "hocketB", "hocketD"}).empty());
  EXPECT_FALSE(untrue(table, {"hocketA", "hocketD"}).empty()) << "B is not here";
  EXPECT_FALSE(untrue(table, {"hocketA", "hocketB", "hocketC", "hocketD"}).empty()) << "C is here";
  EXPECT_FALSE(untrue(table, {"hocketA", "hocketB"}).empty()) << "D is not here";
  EXPECT_FALSE(untrue(table, {"hocketA", "hocketB", "hocketD", "hocketE"}).empty()) << "E is new";
}

TEST(Rules, the_table_of_nccl_calls_is_true) {
  static const std::regex call("\nHOCKET_API [^(]*?(hocket\\w+)\\(");
  std::set<std::string> calls;
  for (const char* header : {"hocket.h", "communicators.h", "collectives.h", "operators.h"}) {
    calls.merge(settings_in(text_of(std::string("include/hocket/") + header), call));
  }
  const std::string table = text_of("docs/NCCL.md");
  const Complaints complaints = untrue(table, calls);
  EXPECT_TRUE(complaints.empty()) << join(complaints);
  const std::string list = table.substr(table.find("\n## "));
  EXPECT_EQ(73U, settings_in(list, std::regex("`(nccl[A-Z]\\w+)`")).size());
}

TEST(Rules, readme_shows_the_first_example) {
  const std::string example = text_of("examples/01_all_reduce.c");
  EXPECT_NE(text_of("README.md").find("```c\n" + example + "```"), std::string::npos);
  EXPECT_LE(lines_of(example).size(), 30U);
}

// Apart from its drawings.
TEST(Rules, the_map_fits_a_page) {
  bool drawing = false;
  std::ptrdiff_t count = 0;
  for (const std::string& line : lines_of(text_of("docs/ARCHITECTURE.md"))) {
    if (line.starts_with("```")) {
      drawing = !drawing;
    } else if (!drawing) {
      std::istringstream words(line);
      count += std::distance(std::istream_iterator<std::string>(words), {});
    }
  }
  EXPECT_FALSE(drawing);
  EXPECT_GT(count, 0);
  EXPECT_LE(count, 900);
}

}  // namespace
}  // namespace rules
