#include "training/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "training/checkpoint_bytes.h"
#include "training/dense_tensor.h"
#include "training/storage_failure.h"

namespace hocket::training::storage {
namespace {

constexpr std::pair<const char*, hocketDataType_t> type_names[] = {
    {"F64", hocketFloat64},   {"F32", hocketFloat32},        {"F16", hocketFloat16},
    {"BF16", hocketBfloat16}, {"F8_E4M3", hocketFloat8e4m3}, {"F8_E5M2", hocketFloat8e5m2},
    {"I64", hocketInt64},     {"I32", hocketInt32},          {"I16", hocketInt16},
    {"I8", hocketInt8},       {"U64", hocketUint64},         {"U32", hocketUint32},
    {"U16", hocketUint16},    {"U8", hocketUint8},           {"BOOL", hocketUint8},
};

hocketDataType_t type_of(const std::string& type, const std::string& name,
                         const std::string& path) {
  for (const auto& [text, dtype] : type_names) {
    if (type == text) return dtype;
  }
  mismatch(
      fmt::format("tensor '{}' of '{}' has type {}, which hocket does not have", name, path, type));
}

const char* type_text(hocketDataType_t dtype) {
  for (const auto& [text, each] : type_names) {
    if (each == dtype) return text;
  }
  return "";
}

/// Reads JSON, and finds what a parsed value no longer shows: keys that occur twice. The format has
/// three levels, so that no header makes the parser deep.
nlohmann::json parse_strictly(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (depth > 3) damaged(path, "the JSON of its header is too deep");
    if (event == nlohmann::json::parse_event_t::object_start) keys.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) keys.pop_back();
    if (event == nlohmann::json::parse_event_t::key &&
        !keys.back().insert(value.get<std::string>()).second) {
      damaged(path, fmt::format("its header has '{}' twice", value.get<std::string>()));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& error) {
    damaged(path, fmt::format("its header is no JSON: {}", error.what()));
  }
}

std::uint64_t number_of(const nlohmann::json& value, const std::string& name,
                        const std::string& path) {
  if (!value.is_number_unsigned()) {
    damaged(path, fmt::format("tensor '{}' has {} instead of a number from 0 on", name,
                              value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  }
  return value.get<std::uint64_t>();
}

SafetensorsEntry parse_entry(const std::string& name, const nlohmann::json& value,
                             const std::string& path) {
  const auto has_wrong = [&](const char* what) {
    damaged(path, fmt::format("tensor '{}' has {}", name, what));
  };
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    has_wrong("other keys than dtype, shape and data_offsets");
  }
  const nlohmann::json &type = value["dtype"], &shape = value["shape"],
                       &offsets = value["data_offsets"];
  if (!type.is_string()) has_wrong("a dtype that is no text");
  if (!shape.is_array()) has_wrong("a shape that is no array");
  if (!offsets.is_array() || offsets.size() != 2) has_wrong("not two data_offsets");
  SafetensorsEntry entry;
  entry.tensor.name = name;
  entry.tensor.dtype = type_of(type.get<std::string>(), name, path);
  for (const nlohmann::json& size : shape) {
    const std::uint64_t elements = number_of(size, name, path);
    if (elements >> 62 != 0) has_wrong("a size of 2^62 or more");
    entry.tensor.sizes.push_back(static_cast<std::int64_t>(elements));
  }
  entry.begin = number_of(offsets[0], name, path);
  entry.end = number_of(offsets[1], name, path);
  try {
    entry.tensor = checked(std::move(entry.tensor));
  } catch (const Failure& failure) {
    damaged(path, failure.what());
  }
  const std::uint64_t bytes = entry.tensor.elements() * type_bytes(entry.tensor.dtype);
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    has_wrong("data_offsets that are not as far apart as its elements need");
  }
  return entry;
}

Metadata parse_metadata(const nlohmann::json& value, const std::string& path) {
  if (!value.is_object()) damaged(path, "its __metadata__ is no object");
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) damaged(path, fmt::format("its metadata '{}' is no text", key));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view json, const std::string& path,
                                    std::uint64_t data_bytes) {
  if (!json.starts_with('{')) damaged(path, "its header does not begin with {");
  const nlohmann::json root = parse_strictly(json, path);
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(value, path);
    } else {
      header.entries.push_back(parse_entry(name, value, path));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != end) {
      damaged(path, fmt::format("tensor '{}' begins at byte {} of the data, and the tensor before "
                                "it ends at byte {}",
                                entry.tensor.name, entry.begin, end));
    }
    end = entry.end;
  }
  if (end != data_bytes) {
    damaged(path, fmt::format("its tensors have {} bytes, and {} bytes follow the header", end,
                              data_bytes));
  }
  return header;
}

std::string layout_safetensors(SafetensorsHeader* header) {
  std::sort(header->entries.begin(), header->entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              const std::size_t of_a = type_bytes(a.tensor.dtype);
              const std::size_t of_b = type_bytes(b.tensor.dtype);
              return of_a != of_b ? of_a > of_b : a.tensor.name < b.tensor.name;
            });
  nlohmann::json root = nlohmann::json::object();
  if (!header->metadata.empty()) root["__metadata__"] = header->metadata;
  std::uint64_t end = 0;
  for (SafetensorsEntry& entry : header->entries) {
    const Parameter& tensor = entry.tensor;
    entry.begin = end;
    entry.end = end += tensor.elements() * type_bytes(tensor.dtype);
    if (tensor.name == "__metadata__" || root.contains(tensor.name)) {
      refuse(fmt::format("two tensors would have the name '{}' in the file", tensor.name));
    }
    root[tensor.name] = {{"dtype", type_text(tensor.dtype)},
                         {"shape", tensor.sizes},
                         {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string json;
  try {
    json = root.dump();
  } catch (const nlohmann::json::exception&) {
    refuse("the file's names and metadata must be UTF-8, and one of them is not");
  }
  // Spaces after the JSON align the data, which begin after 8 bytes and the header.
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > largest_safetensors_header) refuse("the header has more than 100 MB");
  ByteWriter out;
  out.number(static_cast<std::uint64_t>(json.size()));
  out.bytes() += json;
  return std::move(out.bytes());
}

}  // namespace hocket::training::storage
