// The memory of another process of this machine, as the kernel copies it (cross-memory attach).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hocket::internal {

/// Copies bytes from that address of the process to `to`. Returns how many: fewer, if the kernel
/// cannot copy the rest; less than 0 if it copies none, for example because the process has ended.
std::ptrdiff_t read_process(pid_t process, std::uint64_t address, std::size_t bytes, std::byte* to);

}  // namespace hocket::internal
