#include "transport/frame.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hocket::internal {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // Castagnoli, bits reversed

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Table make_table() {
  Table table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? polynomial : 0);
    table[0][i] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255];
    }
  }
  return table;
}
constexpr Table table = make_table();

std::uint64_t load64(const unsigned char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}

#if defined(__x86_64__)

// The CRC instruction has a latency of three cycles and a throughput of one per cycle. So a long
// input is computed as three independent parts of stream_bytes each. To join them, the CRC of a
// part is shifted by the length of the next. Shifting by a constant number of zero bytes is linear:
// it takes a table look-up per byte of the CRC.
constexpr std::size_t stream_bytes = 2048;
using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr std::uint32_t append_zeros(std::uint32_t crc, std::size_t zeros) {
  for (std::size_t i = 0; i < zeros; ++i) crc = (crc >> 8) ^ table[0][crc & 255];
  return crc;
}

Shift make_shift() {
  std::array<std::uint32_t, 32> of_bit{};
  for (int bit = 0; bit < 32; ++bit) of_bit[bit] = append_zeros(1u << bit, stream_bytes);
  Shift shift{};
  for (int byte = 0; byte < 4; ++byte) {
    for (std::uint32_t value = 0; value < 256; ++value) {
      for (int bit = 0; bit < 8; ++bit) {
        if (value >> bit & 1) shift[byte][value] ^= of_bit[8 * byte + bit];
      }
    }
  }
  return shift;
}

std::uint32_t shifted(const Shift& shift, std::uint32_t crc) {
  return shift[0][crc & 255] ^ shift[1][crc >> 8 & 255] ^ shift[2][crc >> 16 & 255] ^
         shift[3][crc >> 24];
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(const void* data,
                                                                      std::size_t bytes,
                                                                      std::uint32_t before) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t crc = ~before;
  if (bytes >= 3 * stream_bytes) {
    static const Shift shift = make_shift();
    while (bytes >= 3 * stream_bytes) {
      std::uint64_t second = 0, third = 0;
      for (std::size_t i = 0; i < stream_bytes; i += 8) {
        crc = _mm_crc32_u64(crc, load64(at + i));
        second = _mm_crc32_u64(second, load64(at + stream_bytes + i));
        third = _mm_crc32_u64(third, load64(at + 2 * stream_bytes + i));
      }
      crc = shifted(shift, static_cast<std::uint32_t>(crc)) ^ second;
      crc = shifted(shift, static_cast<std::uint32_t>(crc)) ^ third;
      at += 3 * stream_bytes;
      bytes -= 3 * stream_bytes;
    }
  }
  for (; bytes >= 8; at += 8, bytes -= 8) crc = _mm_crc32_u64(crc, load64(at));
  auto narrow = static_cast<std::uint32_t>(crc);
  if (bytes >= 4) {
    std::uint32_t word;
    std::memcpy(&word, at, 4);
    narrow = _mm_crc32_u32(narrow, word);
    at += 4;
    bytes -= 4;
  }
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
    for (int k = 0; k < 8; ++k) crc ^= table[7 - k][word >> (8 * k) & 255];
  }
  for (; bytes > 0; ++at, --bytes) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 255];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) {
#if defined(__x86_64__)
  if (has_instruction) return crc32c_by_instruction(data, bytes, before);
#endif
  return crc32c_by_table(data, bytes, before);
}

void seal(FrameHeader& header) {
  header.header_check = crc32c(&header, sizeof header - sizeof header.header_check);
}

const char* fault_of(const FrameHeader& header, std::uint64_t comm_id, std::uint32_t source) {
  const FrameHeader expected;
  if (header.magic != expected.magic) return "a frame that is not in hocket's format";
  if (header.version != expected.version) return "a frame of another version of hocket";
  if (header.header_check != crc32c(&header, sizeof header - sizeof header.header_check)) {
    return "a frame header with a wrong checksum";
  }
  if (header.comm_id != comm_id) return "a frame of another communicator";
  if (header.source != source) return "a frame with the number of another rank";
  if (header.kind < FrameKind::data || header.kind > FrameKind::refusal) {
    return "a frame of an unknown kind";
  }
  if ((header.flags & ~frame_flag::all) != 0) return "a frame with unknown flags";
  if (header.length > max_frame_bytes) return "a frame with more than 1 MiB of payload";
  const std::size_t payload = header.kind == FrameKind::nack       ? sizeof(Nack)
                              : header.kind == FrameKind::location ? sizeof(RegionOffset)
                                                                   : 0;
  if (header.kind != FrameKind::data && header.length != payload) {
    return "a control frame of the wrong length";
  }
  return nullptr;
}

}  // namespace hocket::internal
