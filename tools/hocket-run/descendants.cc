#include "descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace hocket::internal::launch {
namespace {

/// Parent of a process, from /proc/PID/stat: "PID (NAME) STATE PPID ...". 0: it does not exist.
pid_t parent_of(const char* pid) {
  const UniqueFd fd(::open((std::string("/proc/") + pid + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512] = {};
  if (!fd || ::read(fd.get(), text, sizeof text - 1) <= 0) return 0;
  const char* end = std::strrchr(text, ')');  // the name may hold blanks and parentheses
  return end != nullptr && std::strlen(end) > 4 ? std::atoi(end + 4) : 0;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  DIR* processes = ::opendir("/proc");
  if (processes == nullptr) return found;
  while (const dirent* entry = ::readdir(processes)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    if (parent_of(entry->d_name) == ::getpid()) found.push_back(std::atoi(entry->d_name));
  }
  ::closedir(processes);
  return found;
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool kill_descendants(Nanos limit) {
  const Nanos give_up = monotonic_now() + limit;
  while (true) {
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return true;
    if (monotonic_now() > give_up) return false;
    for (const pid_t child : children()) ::kill(child, SIGKILL);
    ::poll(nullptr, 0, 1);  // a killed process does not end at once
  }
}

}  // namespace hocket::internal::launch
