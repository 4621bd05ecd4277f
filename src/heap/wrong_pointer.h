// The end of a process that has damaged its heap, as with the free() of the C library.
#pragma once

namespace hocket::heap {

/// Writes `why` to standard error. Allocates nothing.
[[noreturn]] void end_process(const char* why);

}  // namespace hocket::heap
