#pragma once

#include <cstdint>
#include <string_view>

namespace hocket::training {

/// FNV-1a, 64 bits: equal on all ranks for equal texts.
inline std::uint64_t text_hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

}  // namespace hocket::training
