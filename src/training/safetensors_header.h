// The header of a file in the safetensors format.
#pragma once

#include <cstdint>
#include <hocket/training/checkpoint.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hocket::training::storage {

inline constexpr std::uint64_t largest_safetensors_header = 100'000'000;  // as the format says

struct SafetensorsEntry {
  Parameter tensor;
  std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by begin
  Metadata metadata;
};

/// path: for messages. data_bytes: what the file has behind the header. Throws Failure if the
/// header breaks a rule of the format: JSON of these keys and types without duplicates, and tensors
/// that fill the data without gap and overlap.
SafetensorsHeader parse_safetensors(std::string_view json, const std::string& path,
                                    std::uint64_t data_bytes);

/// Gives the tensors their places in the data, in an order in which each is aligned to its
/// elements. Returns the bytes of the file before the data.
std::string layout_safetensors(SafetensorsHeader* header);

}  // namespace hocket::training::storage
