// Copies of a few bytes, and long copies with ordinary stores and with stores that bypass the
// caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hocket::internal {

/// Copies as memcpy does, with non-temporal stores where the processor has such. They are ordered
/// before every store after the call, as ordinary stores are, so that a flag that is set afterwards
/// publishes them.
void stream_copy(void* to, const void* from, std::size_t bytes);

/// Copies as memcpy does, with vectors of AVX2. Only where has_vector_copy().
void vector_copy(void* to, const void* from, std::size_t bytes);
bool has_vector_copy();

/// Copies as memcpy does, in pieces of 256 KiB: glibc copies longer pieces in another way, which
/// takes longer. On a Zen 5, 12 MiB took 364 us at once, and 253 us in such pieces. On processors
/// of AMD, copies of 2 KiB and more are vector_copy().
void plain_copy(void* to, const void* from, std::size_t bytes);

/// Copies as memcpy does, and 4 to 16 bytes without a call of memcpy: two words, which overlap
/// where the bytes are fewer.
inline void copy_few(void* to, const void* from, std::size_t bytes) {
  const auto copy_ends = [&]<class Word>(Word first) {
    const auto* const source = static_cast<const std::byte*>(from);
    auto* const target = static_cast<std::byte*>(to);
    Word last;
    std::memcpy(&first, source, sizeof first);
    std::memcpy(&last, source + bytes - sizeof last, sizeof last);
    std::memcpy(target, &first, sizeof first);
    std::memcpy(target + bytes - sizeof last, &last, sizeof last);
  };
  if (bytes >= 8 && bytes <= 16) {
    copy_ends(std::uint64_t{});
  } else if (bytes >= 4 && bytes < 8) {
    copy_ends(std::uint32_t{});
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace hocket::internal
