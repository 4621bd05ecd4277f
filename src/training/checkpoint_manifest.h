// The manifest of a checkpoint: which tensors it has, and which file has which of their elements.
#pragma once

#include <cstdint>
#include <hocket/training/checkpoint.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hocket::training::storage {

inline constexpr std::uint32_t format_version = 1;
inline constexpr std::uint64_t largest_manifest = std::uint64_t{1} << 30;  // bytes
inline constexpr std::uint64_t largest_metadata = std::uint64_t{1} << 26;  // bytes of a rank
inline constexpr std::size_t largest_piece = std::size_t{1} << 20;         // bytes
inline constexpr std::size_t piece_alignment = 64;                         // bytes, in a file
inline constexpr std::size_t file_header_bytes = 64;

/// A run of elements of a tensor in the file of a rank.
struct Piece {
  std::uint64_t begin = 0;  // element of the tensor
  std::uint64_t elements = 0;
  std::uint32_t file = 0;    // the rank that wrote it
  std::uint32_t crc = 0;     // CRC32C of the elements
  std::uint64_t offset = 0;  // in the file, in bytes
};

struct StoredTensor {
  Parameter tensor;
  std::vector<Piece> pieces;  // by begin; together they have each element once
};

struct Manifest {
  std::uint64_t id = 0;                   // random; every file of the checkpoint has it
  std::vector<std::uint64_t> file_bytes;  // of the file of each rank
  std::vector<Metadata> metadata;         // of each rank
  std::vector<StoredTensor> tensors;      // by name
};

std::string encode(const Manifest& manifest);
/// path: the manifest's, for messages. Trusts nothing: throws Failure unless every part is as
/// encode() makes it and all lengths, pieces and places are possible.
Manifest decode(std::string_view bytes, const std::string& path);
/// Null: there is no such tensor.
const StoredTensor* find(const Manifest& manifest, const std::string& name);

/// The first bytes of the file of a rank.
std::string encode_file_header(std::uint64_t id, std::uint32_t rank, std::uint32_t ranks);
/// Throws Failure unless the header is that of this file.
void check_file_header(std::string_view header, const std::string& path, std::uint64_t id,
                       std::uint32_t rank, std::uint32_t ranks);

/// What ranks tell one another.
std::string encode(const Metadata& metadata);
Metadata decode_metadata(std::string_view bytes);
/// Ranges without their data.
std::string encode(const std::vector<TensorRange>& ranges);
std::vector<TensorRange> decode_ranges(std::string_view bytes);

std::string data_file_name(std::uint32_t rank);  // "rank-00012"

}  // namespace hocket::training::storage
