// No two types of a namespace have the same name. They would break the one-definition rule, which
// neither compiler nor linker reports.
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "rules/tree.h"

namespace rules {
namespace {

using Names = std::map<std::string, std::string>;  // "hocket::RegionOffset" -> "path:line"

/// Adds the classes, structs, unions and enums that a header defines at namespace level, and a
/// complaint for each name that another header defines too.
void add_types(const File& file, Names* names, Complaints* complaints) {
  static const std::regex token(
      "namespace\\s+([\\w:]*)\\s*\\{|"
      "(?:class|struct|union|enum(?:\\s+class)?)\\s+(?:\\[\\[\\w+\\]\\]\\s*)?"
      "(?:alignas\\s*\\([^)]*\\)\\s*)?(\\w+)[^;{}()=]*\\{|[{}]");
  const std::string code = code_of(file.text);
  std::vector<std::string> scopes;  // an empty name: a block that is no namespace
  for (std::sregex_iterator it(code.begin(), code.end(), token), end; it != end; ++it) {
    const std::smatch& match = *it;
    if (match.str() == "}") {
      if (!scopes.empty()) scopes.pop_back();
      continue;
    }
    std::string space;
    bool at_namespace_level = true;
    for (const std::string& scope : scopes) {
      at_namespace_level = at_namespace_level && !scope.empty();
      space += scope + "::";
    }
    if (match[2].matched && at_namespace_level) {
      const auto line = 1 + std::count(code.begin(), code.begin() + match.position(), '\n');
      const std::string here = at(file.path, static_cast<std::size_t>(line), "");
      const std::string name = space + match.str(2);
      const auto [found, is_new] = names->emplace(name, here);
      if (!is_new) complaints->push_back(here + name + " is also at " + found->second);
    }
    scopes.push_back(match[1].matched ? match.str(1) : "");
  }
}

TEST(Rules, two_types_of_one_name_are_found) {
  const struct {
    const char *first, *second;
    bool allowed;
  } cases[] = {
      {"namespace a { struct X { int i; }; }", "namespace a { class X { long l; }; }", false},
      {"namespace a { struct X {}; }", "namespace a::b { struct X {}; }", true},
      {"namespace a { struct X {}; }", "namespace a { struct X; }", true},
      {"namespace a { struct Y { struct X {}; }; }", "namespace a { struct X {}; }", true},
      {"namespace a { struct X {}; }", "namespace a { void f(struct X x) { g(); } }", true},
      {"namespace a { void f() { if (x) {} } class X : public Y {}; }",
       "namespace a { struct alignas(64) X {}; }", false},
      {"namespace a { enum class X : int { b }; }", "namespace a { struct X {}; }", false},
  };
  for (const auto& test : cases) {
    Names names;
    Complaints complaints;
    add_types({"src/a.h", test.first}, &names, &complaints);
    add_types({"src/b.h", test.second}, &names, &complaints);
    EXPECT_EQ(complaints.empty(), test.allowed) << test.first << " " << test.second;
  }
}

TEST(Rules, no_two_types_have_one_name) {
  Names names;
  Complaints complaints;
  for (const File& file : files()) {
    const bool is_header = file.path.ends_with(".h");
    if (file.path.starts_with("src/") && is_header) add_types(file, &names, &complaints);
  }
  EXPECT_LT(100u, names.size());
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
