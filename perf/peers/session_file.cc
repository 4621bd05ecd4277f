#include "session_file.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hocket::peers {

SessionFile* map_session(const std::string& path, std::string* error) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* mapped = MAP_FAILED;
  if (fd >= 0 && ::ftruncate(fd, sizeof(SessionFile)) == 0) {
    mapped = ::mmap(nullptr, sizeof(SessionFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (mapped == MAP_FAILED) *error = path + ": " + std::strerror(errno);
  if (fd >= 0) ::close(fd);
  return mapped == MAP_FAILED ? nullptr : static_cast<SessionFile*>(mapped);
}

void SessionBarrier::wait(void (*meanwhile)()) {
  file_->arrivals[rank_].epoch.store(++epoch_, std::memory_order_release);
  for (int r = 0; r < ranks_; ++r) {
    int polls = 0;
    while (file_->arrivals[r].epoch.load(std::memory_order_acquire) < epoch_) {
      if (meanwhile != nullptr) meanwhile();
      // A rank that shares its core must let the others arrive.
      if (!may_spin_ || ++polls > 20000) ::sched_yield();
    }
  }
}

}  // namespace hocket::peers
