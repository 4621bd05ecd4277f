// The threads of a test, before it forks.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace tests {

/// Waits until this process has no thread of the library. A thread whose last communicator was
/// destroyed may still be about to end, and the thread sanitizer refuses the threads of a process
/// that was forked beside another thread.
inline void await_end_of_threads() {
  const auto one_runs = [] {
    std::error_code gone;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (name.rfind("hocket-", 0) == 0) return true;
    }
    return false;
  };
  while (one_runs()) ::usleep(300);
}

}  // namespace tests
