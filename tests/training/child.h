// Commands that start this test program again, as a process of its own or as a rank of hocket-run.
#pragma once

#include <filesystem>
#include <string>

namespace tests {

inline std::string quoted(const std::string& text) { return "'" + text + "'"; }

inline std::filesystem::path this_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

/// Runs the test, although it is disabled.
inline std::string command_of(const std::string& test) {
  return quoted(this_program().string()) +
         " --gtest_also_run_disabled_tests --gtest_filter=" + quoted(test);
}

/// The start of a command line: runs the command that follows as so many ranks.
inline std::string hocket_run(int ranks) {
  return quoted((this_program().parent_path() / "hocket-run").string()) + " -n " +
         std::to_string(ranks) + " ";
}

}  // namespace tests
