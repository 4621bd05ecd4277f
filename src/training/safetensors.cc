#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <hocket/training/safetensors.hpp>
#include <system_error>
#include <unordered_map>

#include "training/dense_tensor.h"
#include "training/safetensors_header.h"
#include "training/storage_failure.h"
#include "training/storage_file.h"

namespace hocket::training {
namespace {

using namespace storage;

/// An opened file whose header has been checked.
struct Opened {
  File file;
  std::uint64_t data = 0;  // where the data begin
  SafetensorsHeader header;
};

Opened open_safetensors(const std::string& path) {
  File file = File::open(path);
  const std::uint64_t bytes = file.bytes();
  std::uint64_t length = 0;
  if (bytes < sizeof length) damaged(path, "it is shorter than 8 bytes");
  file.read(&length, sizeof length, 0);
  if (length > largest_safetensors_header || length > bytes - sizeof length) {
    damaged(path,
            fmt::format("its header has {} bytes: more than the file or than 100 MB", length));
  }
  std::string json(length, '\0');
  file.read(json.data(), json.size(), sizeof length);
  const std::uint64_t data = sizeof length + length;
  SafetensorsHeader header = parse_safetensors(json, path, bytes - data);
  return {std::move(file), data, std::move(header)};
}

/// Writes the file under a temporary name, and renames it. read: the elements of tensor i of the
/// header, in row-major order.
void write_file_of(const std::string& path, SafetensorsHeader header,
                   const std::function<void(const std::string& name, void* to)>& read) {
  const std::string begin = layout_safetensors(&header);
  const std::string temporary = fmt::format("{}.new-{}", path, ::getpid());
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);  // of a process that died
  try {
    File file = File::create(temporary);
    file.write(begin.data(), begin.size(), 0);
    std::vector<char> buffer;
    for (const SafetensorsEntry& entry : header.entries) {
      buffer.resize(entry.end - entry.begin);
      read(entry.tensor.name, buffer.data());
      file.write(buffer.data(), buffer.size(), begin.size() + entry.begin);
    }
    file.sync_and_close();
    rename_path(temporary, path);
  } catch (...) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  sync_directory(folder.empty() ? "." : folder);
}

/// As the file has it: without kind and strides.
Parameter exported(const Parameter& tensor) {
  return {without_kind(tensor.name), tensor.dtype, tensor.sizes, {}};
}

/// Adds a tensor to the header; two of one name would be lost in what follows.
void add(SafetensorsHeader* header, std::unordered_map<std::string, std::size_t>* places,
         const Parameter& tensor, std::size_t place) {
  header->entries.push_back({exported(tensor), 0, 0});
  const auto [before, is_new] = places->emplace(header->entries.back().tensor.name, place);
  if (!is_new) {
    refuse(
        fmt::format("tensors would both have the name '{}' in the file, because kinds are left "
                    "out: export them to different files",
                    before->first));
  }
}

void export_all(const std::string& directory, const std::string& path,
                const ExportOptions& options) {
  CheckpointReader reader(directory);
  const std::vector<Parameter>& tensors = reader.tensors();
  SafetensorsHeader header{{}, options.metadata};
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string kind = kind_of(tensors[i].name);
    const auto& kinds = options.kinds;
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) {
      add(&header, &places, tensors[i], i);
    }
  }
  if (places.empty()) refuse("the checkpoint has no tensor of these kinds");
  std::vector<char> memory;
  write_file_of(path, std::move(header), [&](const std::string& name, void* to) {
    const Parameter& tensor = tensors[places.at(name)];
    if (tensor.strides.empty()) return reader.read({tensor, 0, tensor.elements(), to});
    memory.resize(tensor.elements() * type_bytes(tensor.dtype));
    reader.read({tensor, 0, tensor.elements(), memory.data()});
    to_row_major(tensor, memory.data(), to);
  });
}

void write_all(const std::string& path, std::span<const TensorRange> given,
               const Metadata& metadata) {
  SafetensorsHeader header{{}, metadata};
  std::unordered_map<std::string, std::size_t> places;
  std::vector<TensorRange> tensors(given.begin(), given.end());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TensorRange& range = tensors[i];
    range.tensor = checked(std::move(range.tensor));
    require_range(range);
    if (range.elements != range.tensor.elements()) {
      refuse(fmt::format("only elements [{}, {}) of tensor {} are given: a file has whole tensors",
                         range.begin, range.begin + range.elements, describe_stored(range.tensor)));
    }
    add(&header, &places, range.tensor, i);
  }
  write_file_of(path, std::move(header), [&](const std::string& name, void* to) {
    const TensorRange& range = tensors[places.at(name)];
    to_row_major(range.tensor, range.data, to);
  });
}

const SafetensorsEntry& entry_for(const Opened& from, const TensorRange& range,
                                  const std::unordered_map<std::string, std::size_t>& places) {
  const auto place = places.find(without_kind(range.tensor.name));
  if (place == places.end()) {
    mismatch(fmt::format("tensor {} is asked for, and '{}' has no tensor '{}'",
                         describe_stored(range.tensor), from.file.path(),
                         without_kind(range.tensor.name)));
  }
  const SafetensorsEntry& entry = from.header.entries[place->second];
  if (entry.tensor.dtype != range.tensor.dtype || entry.tensor.sizes != range.tensor.sizes) {
    mismatch(fmt::format("tensor '{}' is {} in this program, and {} in '{}'", range.tensor.name,
                         describe_type(range.tensor), describe_type(entry.tensor),
                         from.file.path()));
  }
  return entry;
}

void import_range(const Opened& from, const SafetensorsEntry& entry, const TensorRange& range) {
  const std::size_t element = type_bytes(range.tensor.dtype);
  const std::uint64_t begin = from.data + entry.begin;
  if (range.tensor.strides.empty()) {
    from.file.read(range.data, range.elements * element, begin + range.begin * element);
    return;
  }
  const std::size_t bytes = entry.end - entry.begin;
  std::vector<char> row_major(bytes), memory(bytes);
  from.file.read(row_major.data(), bytes, begin);
  from_row_major(range.tensor, row_major.data(), memory.data());
  std::memcpy(range.data, memory.data() + range.begin * element, range.elements * element);
}

void import_all(const std::string& path, std::span<const TensorRange> given, Metadata* metadata) {
  Opened from = open_safetensors(path);
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < from.header.entries.size(); ++i) {
    places.emplace(from.header.entries[i].tensor.name, i);
  }
  std::vector<TensorRange> ranges(given.begin(), given.end());
  std::vector<const SafetensorsEntry*> entries;
  for (TensorRange& range : ranges) {
    range.tensor = checked(std::move(range.tensor));
    require_range(range);
    entries.push_back(&entry_for(from, range, places));
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].elements > 0) import_range(from, *entries[i], ranges[i]);
  }
  *metadata = std::move(from.header.metadata);
}

}  // namespace

void export_safetensors(const std::string& directory, const std::string& path,
                        const ExportOptions& options) {
  locally("hocket::training::export_safetensors", [&] { export_all(directory, path, options); });
}

void write_safetensors(const std::string& path, std::span<const TensorRange> tensors,
                       const Metadata& metadata) {
  locally("hocket::training::write_safetensors", [&] { write_all(path, tensors, metadata); });
}

SafetensorsContents read_safetensors(const std::string& path) {
  SafetensorsContents contents;
  locally("hocket::training::read_safetensors", [&] {
    Opened opened = open_safetensors(path);
    for (SafetensorsEntry& entry : opened.header.entries) {
      contents.tensors.push_back(std::move(entry.tensor));
    }
    contents.metadata = std::move(opened.header.metadata);
  });
  return contents;
}

Metadata import_safetensors(const std::string& path, std::span<const TensorRange> ranges) {
  Metadata metadata;
  locally("hocket::training::import_safetensors", [&] { import_all(path, ranges, &metadata); });
  return metadata;
}

}  // namespace hocket::training
