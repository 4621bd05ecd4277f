#include "base/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace hocket::internal {

#ifdef __x86_64__
// Wider vectors are not faster: the processor collects the stores of a line.
void stream_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t line = 64;
  auto* dst = static_cast<std::byte*>(to);
  auto* src = static_cast<const std::byte*>(from);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(dst) % line;
  const std::size_t head = past == 0 ? 0 : line - past;
  if (bytes < head + line) {
    if (bytes > 0) std::memcpy(dst, src, bytes);
    return;
  }
  std::memcpy(dst, src, head);
  std::size_t at = head;
  for (; at + line <= bytes; at += line) {
    const auto* const in = reinterpret_cast<const __m128i*>(src + at);
    auto* const out = reinterpret_cast<__m128i*>(dst + at);
    const __m128i first = _mm_loadu_si128(in), second = _mm_loadu_si128(in + 1);
    const __m128i third = _mm_loadu_si128(in + 2), fourth = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, first);
    _mm_stream_si128(out + 1, second);
    _mm_stream_si128(out + 2, third);
    _mm_stream_si128(out + 3, fourth);
  }
  _mm_sfence();
  std::memcpy(dst + at, src + at, bytes - at);
}
#else
void stream_copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
#endif

void plain_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t piece = std::size_t{256} << 10;
  auto* const dst = static_cast<std::byte*>(to);
  auto* const src = static_cast<const std::byte*>(from);
  for (std::size_t at = 0; at < bytes; at += piece) {
    std::memcpy(dst + at, src + at, std::min(piece, bytes - at));
  }
}

}  // namespace hocket::internal
