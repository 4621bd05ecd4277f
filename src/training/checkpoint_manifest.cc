#include "training/checkpoint_manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "training/checkpoint_bytes.h"
#include "training/crc32c.h"
#include "training/dense_tensor.h"
#include "training/storage_failure.h"

namespace hocket::training::storage {
namespace {

constexpr std::string_view manifest_magic = "HKTCKPTM";
constexpr std::string_view data_magic = "HKTCKPTD";
constexpr std::size_t least_tensor_bytes = 4 + 1 + 8;  // the length of the name, it, the rest
constexpr std::size_t piece_bytes = 24;
constexpr std::size_t least_manifest_bytes = 40 + 4;

void write(ByteWriter& out, const Metadata& metadata) {
  out.number(static_cast<std::uint32_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    out.text(key);
    out.text(value);
  }
}

Metadata read_metadata(ByteReader& in) {
  Metadata metadata;
  const std::size_t entries = in.count(in.number<std::uint32_t>(), 8);
  for (std::size_t i = 0; i < entries; ++i) {
    std::string key = in.text();
    if (!metadata.empty() && key <= metadata.rbegin()->first) in.wrong("metadata are not in order");
    metadata.emplace_hint(metadata.end(), std::move(key), in.text());
  }
  return metadata;
}

void write(ByteWriter& out, const Parameter& tensor) {
  out.text(tensor.name);
  out.number(static_cast<std::uint8_t>(tensor.dtype));
  out.number(static_cast<std::uint8_t>(tensor.sizes.size()));
  out.number(static_cast<std::uint8_t>(tensor.strides.empty() ? 0 : 1));
  out.zeros(1);
  for (const std::int64_t size : tensor.sizes) out.number(size);
  for (const std::int64_t stride : tensor.strides) out.number(stride);
}

Parameter read_tensor(ByteReader& in) {
  Parameter tensor;
  tensor.name = in.text();
  const auto type = in.number<std::uint8_t>();
  if (type > hocketUint16) in.wrong("a tensor has an impossible type");
  tensor.dtype = static_cast<hocketDataType_t>(type);
  const std::size_t dimensions = in.number<std::uint8_t>();
  const auto has_strides = in.number<std::uint8_t>();
  in.zeros(1);
  if (has_strides > (dimensions > 0 ? 1 : 0)) {
    in.wrong("a tensor has an impossible mark of strides");
  }
  for (std::size_t d = 0; d < dimensions; ++d) tensor.sizes.push_back(in.number<std::int64_t>());
  for (std::size_t d = 0; d < dimensions && has_strides == 1; ++d) {
    tensor.strides.push_back(in.number<std::int64_t>());
  }
  Parameter usual;
  try {
    usual = checked(tensor);
  } catch (const Failure& failure) {
    in.wrong(failure.what());
  }
  if (usual != tensor) in.wrong("the strides of a tensor are not in their usual form");
  return tensor;
}

void write(ByteWriter& out, const StoredTensor& stored) {
  write(out, stored.tensor);
  out.number(static_cast<std::uint32_t>(stored.pieces.size()));
  for (const Piece& piece : stored.pieces) {
    out.number(piece.file);
    out.number(piece.crc);
    out.number(piece.offset);
    out.number(piece.elements);
  }
}

/// Pieces follow one another in the order of elements, so only their lengths are written.
StoredTensor read_stored(ByteReader& in, const std::vector<std::uint64_t>& file_bytes) {
  StoredTensor stored{read_tensor(in), {}};
  const std::size_t elements = stored.tensor.elements();
  const std::size_t element = type_bytes(stored.tensor.dtype);
  const auto wrong = [&](const char* how) {
    in.wrong(fmt::format("a piece of tensor '{}' {}", stored.tensor.name, how));
  };
  std::uint64_t begin = 0;
  stored.pieces.resize(in.count(in.number<std::uint32_t>(), piece_bytes));
  for (Piece& piece : stored.pieces) {
    piece.file = in.number<std::uint32_t>();
    piece.crc = in.number<std::uint32_t>();
    piece.offset = in.number<std::uint64_t>();
    piece.elements = in.number<std::uint64_t>();
    piece.begin = begin;
    if (piece.file >= file_bytes.size()) wrong("is in a file that does not exist");
    if (piece.elements == 0 || piece.elements > largest_piece / element) {
      wrong("has an impossible length");
    }
    if (piece.elements > elements - begin) wrong("reaches beyond the end of the tensor");
    const std::uint64_t bytes = file_bytes[piece.file];
    if (piece.offset < file_header_bytes || piece.offset > bytes ||
        piece.elements * element > bytes - piece.offset) {
      wrong("reaches beyond the end of its file");
    }
    begin += piece.elements;
  }
  if (begin != elements) {
    in.wrong(fmt::format("elements [{}, {}) of tensor '{}' are missing", begin, elements,
                         stored.tensor.name));
  }
  return stored;
}

void require_magic(std::string_view bytes, std::string_view magic, const std::string& path) {
  if (!bytes.starts_with(magic)) damaged(path, "it does not begin as a file of a checkpoint");
}

void require_version(std::uint32_t version, const std::string& path) {
  if (version == format_version) return;
  mismatch(
      fmt::format("'{}' has version {} of the format of checkpoints, and this version of "
                  "hocket reads version {}",
                  path, version, format_version));
}

/// Messages of ranks are not files.
const std::string message_path = "a message of another rank";

}  // namespace

std::string encode(const Manifest& manifest) {
  ByteWriter out;
  out.bytes() = manifest_magic;
  out.number(format_version);
  out.number(static_cast<std::uint32_t>(manifest.file_bytes.size()));
  out.number(manifest.id);
  const std::size_t place_of_length = out.bytes().size();
  out.zeros(8);
  out.number(static_cast<std::uint64_t>(manifest.tensors.size()));
  for (const std::uint64_t bytes : manifest.file_bytes) out.number(bytes);
  for (const Metadata& of_rank : manifest.metadata) write(out, of_rank);
  for (const StoredTensor& stored : manifest.tensors) write(out, stored);
  const std::uint64_t length = out.bytes().size() + 4;
  std::memcpy(out.bytes().data() + place_of_length, &length, sizeof length);
  out.number(crc32c(out.bytes().data(), out.bytes().size()));
  return std::move(out.bytes());
}

Manifest decode(std::string_view bytes, const std::string& path) {
  require_magic(bytes, manifest_magic, path);
  if (bytes.size() < least_manifest_bytes) damaged(path, "it ends too early");
  const std::string_view covered = bytes.substr(0, bytes.size() - 4);
  ByteReader in(covered.substr(manifest_magic.size()), path);
  require_version(in.number<std::uint32_t>(), path);
  std::uint32_t crc;
  std::memcpy(&crc, bytes.data() + covered.size(), sizeof crc);
  if (crc != crc32c(covered.data(), covered.size())) damaged(path, "its checksum is wrong");
  const auto files = in.number<std::uint32_t>();

  Manifest manifest;
  manifest.id = in.number<std::uint64_t>();
  if (in.number<std::uint64_t>() != bytes.size()) in.wrong("it has another length than it says");
  const auto tensors = in.number<std::uint64_t>();
  if (files == 0) in.wrong("it names no file of a rank");
  manifest.file_bytes.resize(in.count(files, 8 + 4));
  for (std::uint64_t& each : manifest.file_bytes) each = in.number<std::uint64_t>();
  for (std::uint32_t f = 0; f < files; ++f) manifest.metadata.push_back(read_metadata(in));
  const std::size_t count = in.count(tensors, least_tensor_bytes + 4);
  for (std::size_t i = 0; i < count; ++i) {
    manifest.tensors.push_back(read_stored(in, manifest.file_bytes));
    if (i > 0 && manifest.tensors[i - 1].tensor.name >= manifest.tensors[i].tensor.name) {
      in.wrong("its tensors are not in the order of their names");
    }
  }
  if (in.left() != 0) in.wrong("it has bytes behind its last tensor");
  return manifest;
}

const StoredTensor* find(const Manifest& manifest, const std::string& name) {
  const auto found = std::lower_bound(
      manifest.tensors.begin(), manifest.tensors.end(), name,
      [](const StoredTensor& stored, const std::string& to) { return stored.tensor.name < to; });
  return found != manifest.tensors.end() && found->tensor.name == name ? &*found : nullptr;
}

std::string encode_file_header(std::uint64_t id, std::uint32_t rank, std::uint32_t ranks) {
  ByteWriter out;
  out.bytes() = data_magic;
  out.number(format_version);
  out.number(ranks);
  out.number(id);
  out.number(rank);
  out.zeros(file_header_bytes - 4 - out.bytes().size());
  out.number(crc32c(out.bytes().data(), out.bytes().size()));
  return std::move(out.bytes());
}

void check_file_header(std::string_view header, const std::string& path, std::uint64_t id,
                       std::uint32_t rank, std::uint32_t ranks) {
  require_magic(header, data_magic, path);
  ByteReader in(header.substr(data_magic.size()), path);
  require_version(in.number<std::uint32_t>(), path);
  if (header != encode_file_header(id, rank, ranks)) {
    damaged(path, fmt::format("it is not the file of rank {} of this checkpoint", rank));
  }
}

std::string encode(const Metadata& metadata) {
  ByteWriter out;
  write(out, metadata);
  return std::move(out.bytes());
}

Metadata decode_metadata(std::string_view bytes) {
  ByteReader in(bytes, message_path);
  Metadata metadata = read_metadata(in);
  if (in.left() != 0) in.wrong("it has bytes behind its metadata");
  return metadata;
}

std::string encode(const std::vector<TensorRange>& ranges) {
  ByteWriter out;
  out.number(static_cast<std::uint64_t>(ranges.size()));
  for (const TensorRange& range : ranges) {
    write(out, range.tensor);
    out.number(static_cast<std::uint64_t>(range.begin));
    out.number(static_cast<std::uint64_t>(range.elements));
  }
  return std::move(out.bytes());
}

std::vector<TensorRange> decode_ranges(std::string_view bytes) {
  ByteReader in(bytes, message_path);
  std::vector<TensorRange> ranges(in.count(in.number<std::uint64_t>(), least_tensor_bytes + 16));
  for (TensorRange& range : ranges) {
    range.tensor = read_tensor(in);
    range.begin = in.number<std::uint64_t>();
    range.elements = in.number<std::uint64_t>();
  }
  if (in.left() != 0) in.wrong("it has bytes behind its last range");
  return ranges;
}

std::string data_file_name(std::uint32_t rank) { return fmt::format("rank-{:05}", rank); }

}  // namespace hocket::training::storage
