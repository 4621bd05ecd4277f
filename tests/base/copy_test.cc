#include "base/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
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

TEST(PlainCopy, copies_all_bytes_and_no_others) {
  constexpr std::size_t piece = 256 << 10, guard = 64;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, piece - 1, piece, piece + 1, 3 * piece, 3 * piece + 5}) {
    std::vector<std::byte> from(bytes), to(bytes + guard, std::byte{0xa5});
    for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 7 + i / piece);
    plain_copy(to.data(), from.data(), bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << bytes;
    for (std::size_t i = bytes; i < to.size(); ++i) ASSERT_EQ(to[i], std::byte{0xa5}) << bytes;
  }
}

using Copy = void (*)(void*, const void*, std::size_t);

void expect_copies_wherever_both_sides_lie_in_a_page(Copy copy,
                                                     const std::vector<std::size_t>& lengths) {
  constexpr std::size_t page = 4096, guard = 64;
  const std::size_t most = lengths.back();
  std::vector<std::byte> from(most + 2 * page), to(most + 2 * page + guard), expected(to.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto start = [](const std::vector<std::byte>& memory) {
    return page - reinterpret_cast<std::uintptr_t>(memory.data()) % page;
  };
  for (const std::size_t source : {0, 5, 16}) {
    for (const std::size_t behind : {0, 1, 15, 16, 31, 48, 63, 64, 65, 127, 4032, 4095}) {
      for (const std::size_t bytes : lengths) {
        const std::size_t at = start(to) + (source + behind) % page;
        std::fill(to.begin(), to.end(), std::byte{0xa5});
        std::fill(expected.begin(), expected.end(), std::byte{0xa5});
        std::memcpy(expected.data() + at, from.data() + start(from) + source, bytes);
        copy(to.data() + at, from.data() + start(from) + source, bytes);
        ASSERT_EQ(0, std::memcmp(expected.data(), to.data(), to.size()))
            << bytes << " bytes from " << source << ", " << behind << " behind";
      }
    }
  }
}

// How plain_copy, and memcpy in it, copies depends on the length and on the places in the pages.
TEST(PlainCopy, copies_all_bytes_and_no_others_wherever_they_lie_in_a_page) {
  expect_copies_wherever_both_sides_lie_in_a_page(plain_copy, {2047, 2048, 2111, 3 * 4096 + 5});
}

TEST(VectorCopy, copies_all_bytes_and_no_others_wherever_they_lie_in_a_page) {
  if (!has_vector_copy()) GTEST_SKIP() << "no AVX2";
  expect_copies_wherever_both_sides_lie_in_a_page(vector_copy,
                                                  {0, 1, 127, 128, 129, 255, 256, 1000, 4096 + 5});
}

TEST(CopyFew, writes_what_memcpy_writes_and_no_byte_more) {
  constexpr std::size_t guard = 8;
  for (std::size_t bytes = 1; bytes <= 40; ++bytes) {
    std::vector<std::byte> from(bytes), to(bytes + 2 * guard, std::byte{0xa5});
    for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
    std::vector<std::byte> expected = to;
    std::copy(from.begin(), from.end(), expected.begin() + guard);
    copy_few(to.data() + guard, from.data(), bytes);
    EXPECT_EQ(expected, to) << bytes << " bytes";
  }
}

}  // namespace
}  // namespace hocket::internal
