#include "bootstrap/join/unique_id.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "bootstrap/auth/auth.h"
#include "bootstrap/net/address.h"

namespace hocket::internal {
namespace {

UniqueId sample() {
  UniqueId id;
  EXPECT_TRUE(make_unique_id(&id).ok());
  EXPECT_TRUE(parse_address("[fe80::1]:4000", &id.coordinator).ok());
  return id;
}

TEST(UniqueId, says_after_decoding_what_was_encoded) {
  for (const char* address : {"10.0.0.1:4000", "[fe80::1]:4000", "127.0.0.1:65535"}) {
    UniqueId id = sample();
    ASSERT_TRUE(parse_address(address, &id.coordinator).ok());
    UniqueId out;
    const Status status = decode(encode(id), &out);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(out.job_id, id.job_id);
    EXPECT_EQ(out.key, id.key);
    EXPECT_EQ(out.coordinator.text(), address);
  }
}

TEST(UniqueId, two_are_never_alike) { EXPECT_NE(sample().key, sample().key); }

TEST(UniqueId, bad_bytes_get_an_error_that_says_what_happened) {
  struct Case {
    const char* part;
    std::function<void(UniqueIdBytes&)> spoil;
  };
  const Case cases[] = {
      {"all zeros", [](UniqueIdBytes& b) { b.fill(0); }},
      {"not made by", [](UniqueIdBytes& b) { b.fill(0x5a); }},
      {"not made by", [](UniqueIdBytes& b) { b[0] ^= 1; }},
      {"version", [](UniqueIdBytes& b) { b[8] = 9; }},
      {"cut or damaged", [](UniqueIdBytes& b) { std::fill(b.begin() + 20, b.end(), 0); }},
      {"cut or damaged", [](UniqueIdBytes& b) { b[127] = 0, b[126] = 0, b[125] ^= 0xff; }},
  };
  for (const Case& c : cases) {
    UniqueIdBytes bytes = encode(sample());
    c.spoil(bytes);
    UniqueId out;
    const Status status = decode(bytes, &out);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(c.part), std::string::npos) << status.message();
  }
}

TEST(UniqueId, other_flags_are_refused_though_the_check_is_right) {
  const struct {
    std::uint8_t flags;
    const char* part;
  } cases[] = {{0, "has no job key"}, {2, "damaged"}, {3, "damaged"}};
  for (const auto& [flags, part] : cases) {
    UniqueIdBytes bytes = encode(sample());
    ASSERT_EQ(bytes[10], 1);
    bytes[10] = flags;
    Digest check{};
    ASSERT_TRUE(
        keyed_digest(Key{}, "hocket unique id", {bytes.begin(), bytes.begin() + 112}, &check));
    std::copy_n(check.begin(), 16, bytes.begin() + 112);
    UniqueId out;
    const Status status = decode(bytes, &out);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

TEST(UniqueId, any_changed_bit_is_found) {
  const UniqueIdBytes good = encode(sample());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    UniqueIdBytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    UniqueId out;
    EXPECT_FALSE(decode(bytes, &out).ok()) << "bit " << bit;
  }
}

}  // namespace
}  // namespace hocket::internal
