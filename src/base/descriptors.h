// Opens descriptors when the process has none left (ulimit -n): it closes connections that have not
// proved that they know the job key, and tries again.
#pragma once

#include <atomic>
#include <cerrno>

#include "base/clock.h"

namespace hocket::internal {

/// How long the process may be without a descriptor for a connection, before that is an error:
/// descriptors may become free.
inline constexpr Nanos descriptor_patience = nanos_per_s;

/// Closes a descriptor that the job does not need; returns false if there is none. Null: no part of
/// the process has such descriptors.
inline std::atomic<bool (*)()> spare_descriptor{nullptr};

/// Returns what open() returns, a descriptor or -1. Calls open() again as long as
/// spare_descriptor() closes a descriptor for it. The caller must not hold a lock that the monitor
/// thread takes.
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
