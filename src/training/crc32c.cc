#include "training/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hocket::training::storage {
namespace {

/// tables[k][b]: the CRC register after byte b and k zero bytes.
constexpr auto tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> all{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    all[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = all[k - 1][byte];
      all[k][byte] = crc >> 8 ^ all[0][crc & 255];
    }
  }
  return all;
}();

std::uint64_t load64(const unsigned char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(const void* data,
                                                                      std::size_t bytes,
                                                                      std::uint32_t before) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t crc = ~before;
  for (; bytes >= 8; at += 8, bytes -= 8) crc = _mm_crc32_u64(crc, load64(at));
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; bytes > 0; ++at, --bytes) narrow = _mm_crc32_u8(narrow, *at);
  return ~narrow;
}

const bool has_instruction = __builtin_cpu_supports("sse4.2");
#endif

}  // namespace

std::uint32_t crc32c_by_table(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const std::uint64_t word = load64(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][word >> (8 * k) & 255];
  }
  for (; bytes > 0; ++at, --bytes) crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) {
#if defined(__x86_64__)
  if (has_instruction) return crc32c_by_instruction(data, bytes, before);
#endif
  return crc32c_by_table(data, bytes, before);
}

}  // namespace hocket::training::storage
