// The library neither prints nor ends the process. The exceptions: src/base/log.cc writes the lines
// that HOCKET_LOG asks for; src/base/assert.cc ends Debug and sanitizer builds where they find a
// defect, and is empty in a Release build; src/heap/wrong_pointer.cc does what free() does with a
// wrong pointer.
#include <gtest/gtest.h>

#include <regex>

#include "rules/tree.h"

namespace rules {
namespace {

Complaints noise(const File& file) {
  static const std::regex call(
      "\\b(v?f?d?printf|f?puts|perror|psignal)\\s*\\(|"
      "(^|[^\\w>.])(std)?::(_?exit|_Exit|quick_exit|abort|terminate)\\s*\\(|"
      "\\bstd::(cout|cerr|clog)\\b|\\b(STDOUT|STDERR)_FILENO\\b");
  Complaints complaints;
  const bool writes_the_log = file.path == "src/base/log.cc";
  const bool frees = file.path == "src/heap/wrong_pointer.cc";
  const bool asserts = file.path == "src/base/assert.cc" &&
                       file.text.find("#ifdef HOCKET_ASSERTS\n\n#include") != std::string::npos;
  std::size_t number = 0;
  for (const std::string& line : lines_of(code_of(file.text))) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, call)) continue;
    if ((writes_the_log || asserts || frees) && match.str() == "STDERR_FILENO") continue;
    if ((asserts || frees) && match.str().ends_with("std::abort(")) continue;
    complaints.push_back(at(file.path, number, "prints or ends the process: " + match.str()));
  }
  return complaints;
}

TEST(Rules, what_prints_or_ends_the_process_is_found) {
  const struct {
    const char* path;
    const char* line;
    bool allowed;
  } cases[] = {
      {"src/a.cc", "std::printf(\"x\");", false},
      {"src/a.cc", "fprintf(stderr, \"x\");", false},
      {"src/a.cc", "std::cerr << x;", false},
      {"src/a.cc", "::exit(1);", false},
      {"src/a.cc", "std::abort();", false},
      {"src/a.cc", "::write(STDERR_FILENO, x, 1);", false},
      {"src/base/log.cc", "::write(STDERR_FILENO, x, 1);", true},
      {"src/base/log.cc", "std::puts(x);", false},
      {"src/base/assert.cc", "std::abort();", false},
      {"src/heap/wrong_pointer.cc", "std::abort();", true},
      {"src/heap/malloc.cc", "std::abort();", false},
      {"src/base/assert.cc", "#ifdef HOCKET_ASSERTS\n\n#include <cstdlib>\nstd::abort();", true},
      {"src/base/log.cc", "#ifdef HOCKET_ASSERTS\n\n#include <cstdlib>\nstd::abort();", false},
      {"src/a.cc", "communicator->exit();", true},
      {"src/a.cc", "void Communicator::abort() {", true},
      {"src/a.cc", "std::snprintf(x, 1, y);", true},
      {"src/a.cc", "// std::abort();", true},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(noise({test.path, std::string(test.line) + "\n"}).empty(), test.allowed) << test.line;
  }
}

TEST(Rules, the_library_neither_prints_nor_ends_the_process) {
  Complaints complaints;
  for (const File& file : files()) {
    if (!file.path.starts_with("src/") || !is_source(file.path)) continue;
    for (const std::string& complaint : noise(file)) complaints.push_back(complaint);
  }
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
