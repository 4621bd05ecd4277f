// No file depends on the machine on which it was written: no absolute paths to private folders, and
// links only to well-known sites.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "rules/tree.h"

namespace rules {
namespace {

const std::set<std::string> own_folders = {"Users", "builds", "data", "home",      "media",
                                           "mnt",   "nfs",    "opt",  "root",      "scratch",
                                           "srv",   "work",   "ws",   "workspace", "workspaces"};
const std::set<std::string> known_hosts = {"arxiv.org",          "doi.org",
                                           "www.rfc-editor.org", "www.opencompute.org",
                                           "json-schema.org",    "www.w3.org"};

Complaints check(const File& file) {
  static const std::regex path("(^|[\\s\"'`=(<,])/([A-Za-z_][A-Za-z0-9_.-]*)/");
  static const std::regex link("https?://([A-Za-z0-9.-]+)");
  Complaints complaints;
  std::size_t number = 0;
  const auto look = [&](const std::string& line, const std::regex& pattern, int group,
                        const auto& wrong, const std::string& what) {
    for (std::sregex_iterator i(line.begin(), line.end(), pattern), end; i != end; ++i) {
      const std::string name = (*i)[group];
      if (wrong(name)) complaints.push_back(at(file.path, number, what + name));
    }
  };
  const auto is_own = [](const std::string& name) { return own_folders.contains(name); };
  const auto is_unknown = [](const std::string& name) { return !known_hosts.contains(name); };
  for (const std::string& line : lines_of(file.text)) {
    ++number;
    look(line, path, 2, is_own, "a path of some machine: /");
    look(line, link, 1, is_unknown, "a host that is not on the list: ");
  }
  return complaints;
}

TEST(Rules, a_machines_path_and_an_unknown_host_are_found) {
  // Put together here, so that this file does not break its own rule.
  const std::string slash = "/";
  const struct {
    std::string text;
    bool allowed;
  } cases[] = {
      {"cat " + slash + "proc/self/maps", true},
      {"cd " + slash + "home/somebody/src", false},
      {"open(\"" + slash + "data/x\")", false},
      {"algbw/busbw, 1/2, src/base/log.h", true},
      {"http:/" + slash + "packages.example.com/pool", false},
      {"https:/" + slash + "arxiv.org/abs/2410.14234", true},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(check({"a", test.text}).empty(), test.allowed) << test.text;
  }
}

TEST(Rules, no_machine_and_no_registry_is_named) {
  Complaints complaints;
  for (const File& file : files()) {
    for (const std::string& complaint : check(file)) complaints.push_back(complaint);
  }
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
