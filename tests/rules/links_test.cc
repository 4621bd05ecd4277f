// Every relative link of the documentation leads to a file or folder of the repository, and to a
// heading where it names one.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "rules/tree.h"

namespace rules {
namespace {

/// The name of a heading in links: its letters and digits in lower case, with '-' for a space.
std::string anchor_of(const std::string& heading) {
  static const std::regex link("\\[([^\\]]*)\\]\\([^)]*\\)");
  std::string anchor;
  for (const char c : std::regex_replace(heading, link, "$1")) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ') {
      anchor += '-';
    } else if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80) {
      anchor += static_cast<char>(std::tolower(byte));
    }
  }
  return anchor;
}

std::set<std::string> anchors_of(const std::string& text) {
  static const std::regex heading("#+ +(.*)");
  std::set<std::string> anchors;
  bool code = false;
  std::smatch match;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("```")) code = !code;
    if (!code && std::regex_match(line, match, heading)) anchors.insert(anchor_of(match[1]));
  }
  return anchors;
}

/// The links of a page that lead nowhere. pages: the text of each file, by its path.
Complaints broken(const File& page, const std::map<std::string, std::string>& pages) {
  static const std::regex link("\\]\\(([^()#\\s]*)(?:#([^()\\s]+))?\\)");
  Complaints complaints;
  std::size_t number = 0;
  for (const std::string& line : lines_of(page.text)) {
    ++number;
    for (std::sregex_iterator i(line.begin(), line.end(), link), end; i != end; ++i) {
      const std::string target = (*i)[1], anchor = (*i)[2];
      if (target.find("://") != target.npos || target.starts_with("mailto:")) continue;
      const auto folder = std::filesystem::path(page.path).parent_path();
      std::string path = target.empty() ? page.path : (folder / target).lexically_normal().string();
      if (path.ends_with('/')) path.pop_back();
      const auto found = pages.lower_bound(path);
      const bool is_file = found != pages.end() && found->first == path;
      const auto inside = pages.lower_bound(path + "/");
      const bool is_folder = inside != pages.end() && inside->first.starts_with(path + "/");
      if (!is_file && !is_folder) {
        complaints.push_back(at(page.path, number, "a link to no file: " + target));
      } else if (!anchor.empty() && is_file && path.ends_with(".md") &&
                 !anchors_of(found->second).contains(anchor)) {
        complaints.push_back(at(page.path, number, "no heading of " + path + ": #" + anchor));
      }
    }
  }
  return complaints;
}

TEST(Rules, a_link_that_leads_nowhere_is_found) {
  const std::map<std::string, std::string> pages = {
      {"README.md", "# Title\n## One: `a_b`, *two*\n```\n# no heading\n```\n"},
      {"docs/A.md", "## [Linked](B.md) part\n"},
      {"docs/plots/a.svg", ""}};
  const struct {
    std::string from, link;
    bool good;
  } cases[] = {
      {"docs/A.md", "[x](../README.md#one-a_b-two)", true},
      {"docs/A.md", "[x](#linked-part)", true},
      {"docs/A.md", "![x](plots/a.svg) and [y](plots)", true},
      {"README.md", "[x](docs/plots/)", true},
      {"README.md", "[x](docs/A.md#linked-part)", true},
      {"README.md", "[x](https://arxiv.org/abs/2410.14234#none)", true},
      {"README.md", "[x](docs/B.md)", false},
      {"docs/A.md", "[x](README.md)", false},
      {"docs/A.md", "[x](../README.md#no-heading)", false},
      {"README.md", "[x](docs/A.md#title)", false},
      {"README.md", "[x](docs/plo)", false},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(broken({test.from, test.link}, pages).empty(), test.good) << test.link;
  }
}

TEST(Rules, links_of_the_documentation_lead_to_files_and_headings) {
  std::map<std::string, std::string> pages;
  for (const File& file : files()) pages[file.path] = file.path.ends_with(".md") ? file.text : "";
  Complaints complaints;
  std::size_t read = 0;
  for (const File& file : files()) {
    if (!file.path.ends_with(".md")) continue;
    ++read;
    for (const std::string& each : broken(file, pages)) complaints.push_back(each);
  }
  EXPECT_GT(read, 20U);
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
