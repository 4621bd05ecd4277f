#pragma once

#include <cstdint>

namespace hocket::internal {

/// The finaliser of MurmurHash3 (Appleby, public domain constants): every input bit affects every
/// output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

}  // namespace hocket::internal
