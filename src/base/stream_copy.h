// Long copies, with ordinary stores and with stores that bypass the caches.
#pragma once

#include <cstddef>

namespace hocket::internal {

/// Copies as memcpy does, with non-temporal stores where the processor has such. They are ordered
/// before every store after the call, as ordinary stores are, so that a flag that is set afterwards
/// publishes them.
void stream_copy(void* to, const void* from, std::size_t bytes);

/// Copies as memcpy does, in pieces of 256 KiB: glibc copies longer pieces in another way, which
/// takes longer. On a Zen 5, 12 MiB took 364 us at once, and 253 us in such pieces.
void plain_copy(void* to, const void* from, std::size_t bytes);

}  // namespace hocket::internal
