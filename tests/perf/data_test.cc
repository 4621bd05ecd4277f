#include "data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

namespace hocket::perf {
namespace {

TEST(Data, a_part_is_the_same_whether_made_alone_or_in_the_whole) {
  constexpr std::size_t count = 100;
  for (const hocketDataType_t dtype : all_dtypes()) {
    std::vector<char> whole(count * size_of(dtype));
    generate(whole.data(), 0, count, dtype, Spread::sum, 7);
    for (std::size_t first = 0; first < 20; ++first) {
      for (std::size_t n : {0, 1, 5, 64}) {
        std::vector<char> part(n * size_of(dtype));
        generate(part.data(), first, n, dtype, Spread::sum, 7);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * size_of(dtype)))
            << name_of(dtype) << " from " << first << ", " << n << " elements";
      }
    }
  }
}

TEST(Data, every_part_of_a_seed_changes_it) {
  std::set<std::uint64_t> values{Seed{}.value()};
  Seed changed[6];
  changed[0].run = 2;
  changed[1].row = 1;
  changed[2].pass = 1;
  changed[3].iteration = 1;
  changed[4].slot = 1;
  changed[5].rank = 1;
  for (const Seed& seed : changed) values.insert(seed.value());
  EXPECT_EQ(values.size(), 7u);
}

TEST(Data, floats_stay_in_the_range_of_their_spread) {
  const struct {
    Spread spread;
    float least, most;
  } cases[] = {
      {Spread::sum, 0x1p-8f, 1}, {Spread::product_even, 0.75f, 1}, {Spread::product_odd, 1, 1.5f}};
  for (const auto& test : cases) {
    std::vector<float> values(10000);
    generate(values.data(), 0, values.size(), hocketFloat32, test.spread, 3);
    int negative = 0;
    for (const float v : values) {
      EXPECT_GE(std::fabs(v), test.least);
      EXPECT_LT(std::fabs(v), test.most);
      negative += v < 0;
    }
    EXPECT_NEAR(negative, 5000, 300);
  }
}

TEST(Data, a_hash_sees_every_bit_and_the_order) {
  std::vector<unsigned char> bytes(83);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 37);
  std::set<std::uint64_t> hashes{hash_bytes(bytes.data(), bytes.size())};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    hashes.insert(hash_bytes(bytes.data(), bytes.size()));
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 32, bytes.begin() + 32);
  hashes.insert(hash_bytes(bytes.data(), bytes.size()));
  EXPECT_EQ(hashes.size(), bytes.size() * 8 + 2);
}

}  // namespace
}  // namespace hocket::perf
