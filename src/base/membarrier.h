// The system call membarrier(2), for which glibc has no function.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hocket::internal {

/// command: MEMBARRIER_CMD_... False: the kernel has no such command, or the process may not call
/// it.
inline bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace hocket::internal
