#include "base/stream_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace hocket::internal {
namespace {

TEST(StreamCopy, writes_what_memcpy_writes_and_no_byte_more) {
  constexpr std::size_t line = 64, most = 5 * line + 3;
  alignas(line) std::byte to[most + 3 * line], expected[sizeof to], from[most + line];
  for (std::size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t at = 0; at < line; ++at) {
    for (std::size_t bytes = 0; bytes <= most; bytes += bytes < 2 * line + 2 ? 1 : 17) {
      const std::size_t source = (at + bytes) % line;
      std::memset(to, 0xee, sizeof to);
      std::memset(expected, 0xee, sizeof expected);
      std::memcpy(expected + line + at, from + source, bytes);
      stream_copy(to + line + at, from + source, bytes);
      ASSERT_EQ(0, std::memcmp(expected, to, sizeof to)) << bytes << " bytes to line + " << at;
    }
  }
}

}  // namespace
}  // namespace hocket::internal
