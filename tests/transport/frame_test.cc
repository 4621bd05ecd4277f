#include "transport/frame.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace hocket::internal {
namespace {

TEST(Crc32c, has_the_published_values) {
  struct {
    std::string text;
    std::uint32_t crc;
  } const cases[] = {
      {"", 0},
      {"123456789", 0xe3069283},
      {std::string(32, '\0'), 0x8a9136aa},  // RFC 3720, B.4
      {std::string(32, '\xff'), 0x62a8ab43},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(crc32c(test.text.data(), test.text.size()), test.crc);
    EXPECT_EQ(crc32c_by_table(test.text.data(), test.text.size()), test.crc);
  }
}

TEST(Crc32c, is_the_same_by_instruction_and_by_table_and_in_pieces) {
  std::mt19937_64 random(1);
  std::vector<unsigned char> data(70'000);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  for (int i = 0; i < 400; ++i) {
    const std::size_t start = random() % 64;
    const std::size_t bytes = i < 100 ? i : random() % (data.size() - start);
    const std::uint32_t expected = crc32c_by_table(data.data() + start, bytes);
    ASSERT_EQ(crc32c(data.data() + start, bytes), expected) << bytes;
    const std::size_t cut = bytes > 0 ? random() % bytes : 0;
    const std::uint32_t first = crc32c(data.data() + start, cut);
    ASSERT_EQ(crc32c(data.data() + start + cut, bytes - cut, first), expected);
  }
}

TEST(FrameHeader, any_flipped_bit_is_a_fault) {
  FrameHeader good;
  good.comm_id = 7;
  good.source = 3;
  good.sequence = 99;
  good.length = 100;
  good.total = 1000;
  seal(good);
  ASSERT_EQ(fault_of(good, 7, 3), nullptr);
  for (std::size_t bit = 0; bit < 8 * sizeof good; ++bit) {
    FrameHeader bad = good;
    reinterpret_cast<unsigned char*>(&bad)[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    EXPECT_NE(fault_of(bad, 7, 3), nullptr) << "bit " << bit;
  }
}

TEST(FrameHeader, a_sealed_lie_is_a_fault) {
  const struct {
    const char* name;
    std::function<void(FrameHeader&)> lie;
  } cases[] = {
      {"kind 0", [](FrameHeader& h) { h.kind = static_cast<FrameKind>(0); }},
      {"kind 7", [](FrameHeader& h) { h.kind = static_cast<FrameKind>(7); }},
      {"version", [](FrameHeader& h) { h.version = frame_version - 1; }},
      {"comm_id", [](FrameHeader& h) { h.comm_id = 8; }},
      {"source", [](FrameHeader& h) { h.source = 4; }},
      {"flags", [](FrameHeader& h) { h.flags = 16; }},
      {"length", [](FrameHeader& h) { h.length = max_frame_bytes + 1; }},
      {"ready with payload", [](FrameHeader& h) { h.kind = FrameKind::cts; }},
      {"refuse without payload",
       [](FrameHeader& h) {
         h.kind = FrameKind::nack;
         h.length = 0;
       }},
  };
  for (const auto& test : cases) {
    FrameHeader header;
    header.comm_id = 7;
    header.source = 3;
    header.length = 100;
    test.lie(header);
    seal(header);
    EXPECT_NE(fault_of(header, 7, 3), nullptr) << test.name;
  }
}

}  // namespace
}  // namespace hocket::internal
