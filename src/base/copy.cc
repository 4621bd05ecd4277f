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

bool has_vector_copy() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}

[[gnu::target("avx2")]] void vector_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t step = 4 * sizeof(__m256i);
  auto* const dst = static_cast<std::byte*>(to);
  auto* const src = static_cast<const std::byte*>(from);
  std::size_t at = std::min(-reinterpret_cast<std::uintptr_t>(dst) % step, bytes);
  if (at > 0) std::memcpy(dst, src, at);
  for (; at + step <= bytes; at += step) {
    const auto* const in = reinterpret_cast<const __m256i*>(src + at);
    auto* const out = reinterpret_cast<__m256i*>(dst + at);
    const __m256i first = _mm256_loadu_si256(in), second = _mm256_loadu_si256(in + 1);
    const __m256i third = _mm256_loadu_si256(in + 2), fourth = _mm256_loadu_si256(in + 3);
    _mm256_store_si256(out, first);
    _mm256_store_si256(out + 1, second);
    _mm256_store_si256(out + 2, third);
    _mm256_store_si256(out + 3, fourth);
  }
  if (at < bytes) std::memcpy(dst + at, src + at, bytes - at);
}

namespace {

bool is_amd() { return __builtin_cpu_is("amd") != 0; }

}  // namespace
#else
void stream_copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

bool has_vector_copy() { return false; }
void vector_copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

namespace {

bool is_amd() { return false; }

}  // namespace
#endif

namespace {

/// From about 2 KiB on glibc 2.36 copies by the instruction `rep movsb`. On a Zen 3 that took 0.55
/// ns per byte instead of 0.03 if the destination was 1 to 31 bytes behind the source, modulo the
/// size of a page. malloc returns long blocks 16 bytes behind the start of a page, and scratch
/// begins at one. Other copies between two cores took up to twice as long as with vectors
/// (docs/decisions/024-copies-by-vectors.md).
bool prefers_vectors() {
  static const bool answer = has_vector_copy() && is_amd();
  return answer;
}

}  // namespace

void plain_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t least_repeated_bytes = 2 << 10, piece = 256 << 10;
  if (bytes >= least_repeated_bytes && prefers_vectors()) return vector_copy(to, from, bytes);
  auto* const dst = static_cast<std::byte*>(to);
  auto* const src = static_cast<const std::byte*>(from);
  for (std::size_t at = 0; at < bytes; at += piece) {
    std::memcpy(dst + at, src + at, std::min(piece, bytes - at));
  }
}

}  // namespace hocket::internal
