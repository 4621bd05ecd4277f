// The header of a safetensors file, which may come from anywhere.
#include <map>

#include "fuzz/fuzz.h"
#include "training/safetensors_header.h"
#include "training/storage_failure.h"

namespace hocket::training::storage {
namespace {

std::map<std::string, Parameter> by_name(const SafetensorsHeader& header) {
  std::map<std::string, Parameter> tensors;
  for (const SafetensorsEntry& entry : header.entries) tensors[entry.tensor.name] = entry.tensor;
  return tensors;
}

FUZZ_TARGET(safetensors, input) {
  const std::uint64_t data_bytes = input.number<std::uint16_t>();
  SafetensorsHeader header;
  try {
    header = parse_safetensors(input.text(), "fuzz", data_bytes);
  } catch (const Failure& failure) {
    FUZZ_CHECK(std::string_view(failure.what()).find("'fuzz'") != std::string_view::npos);
    return;
  }
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    FUZZ_CHECK(entry.begin == end && entry.end >= end);
    end = entry.end;
  }
  FUZZ_CHECK(end == data_bytes);
  SafetensorsHeader written = header;
  const std::string bytes = layout_safetensors(&written);
  FUZZ_CHECK(bytes.size() % 8 == 0);
  const SafetensorsHeader again =
      parse_safetensors(std::string_view(bytes).substr(8), "again", data_bytes);
  FUZZ_CHECK(by_name(again) == by_name(header) && again.metadata == header.metadata);
}

}  // namespace
}  // namespace hocket::training::storage
