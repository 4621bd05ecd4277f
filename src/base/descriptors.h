// What to do where a process has no descriptor left (ulimit -n): connections that have not proved
// the job's key hold some that the job needs more.
#pragma once

#include <atomic>
#include <cerrno>

namespace hocket::internal {

/// Closes a descriptor that can be spared; false where there is none. Null: nobody has any.
inline std::atomic<bool (*)()> spare_descriptor{nullptr};

/// What open() returns, a descriptor or -1; asked again as long as descriptors are spared for it.
/// Not for a thread that holds a lock which the monitor thread takes.
template <typename Open>
int open_with_room(Open open) {
  for (;;) {
    const int fd = open();
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE)) return fd;
    const int error = errno;
    bool (*const spare)() = spare_descriptor.load();
    const bool spared = spare != nullptr && spare();
    errno = error;
    if (!spared) return fd;
  }
}

}  // namespace hocket::internal
