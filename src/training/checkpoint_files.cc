#include "training/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "training/checkpoint_directory.h"
#include "training/crc32c.h"
#include "training/dense_tensor.h"
#include "training/storage_failure.h"

namespace hocket::training::storage {

std::string manifest_bytes(const std::string& path) {
  return contents_of(path + "/manifest", largest_manifest);
}

const StoredTensor& CheckpointFiles::stored(const TensorRange& range) const {
  const StoredTensor* found = find(manifest_, range.tensor.name);
  if (found == nullptr) {
    mismatch(
        fmt::format("tensor {} is asked for, and checkpoint '{}' does not have it. It has {} "
                    "tensors{}",
                    describe_stored(range.tensor), path_, manifest_.tensors.size(),
                    manifest_.tensors.empty()
                        ? ""
                        : ", the first is " + describe_stored(manifest_.tensors[0].tensor)));
  }
  if (found->tensor != range.tensor) {
    mismatch(fmt::format(
        "tensor '{}' is {} in this job, and {} in checkpoint '{}', which is of "
        "another model",
        range.tensor.name, describe_type(range.tensor), describe_type(found->tensor), path_));
  }
  return *found;
}

const File& CheckpointFiles::file(std::uint32_t rank) {
  if (open_ && open_rank_ == rank) return *open_;
  open_.emplace(File::open(path_ + "/" + data_file_name(rank)));
  open_rank_ = rank;
  if (was_checked_[rank]) return *open_;
  const std::uint64_t bytes = open_->bytes(), expected = manifest_.file_bytes[rank];
  if (bytes != expected) {
    damaged(open_->path(), fmt::format("it has {} bytes instead of {}", bytes, expected));
  }
  std::string header(file_header_bytes, '\0');
  open_->read(header.data(), header.size(), 0);
  check_file_header(header, open_->path(), manifest_.id, rank,
                    static_cast<std::uint32_t>(manifest_.file_bytes.size()));
  was_checked_[rank] = true;
  return *open_;
}

void CheckpointFiles::read_piece(const StoredTensor& stored, const Piece& piece, char* memory) {
  const std::size_t bytes = piece.elements * type_bytes(stored.tensor.dtype);
  const File& from = file(piece.file);
  from.read(memory, bytes, piece.offset);
  if (crc32c(memory, bytes) != piece.crc) {
    damaged(from.path(),
            fmt::format("the checksum of elements [{}, {}) of tensor '{}' is wrong", piece.begin,
                        piece.begin + piece.elements, stored.tensor.name));
  }
}

void CheckpointFiles::read(const TensorRange& range, void* memory) {
  const StoredTensor& from = stored(range);
  const std::size_t element = type_bytes(from.tensor.dtype);
  const std::uint64_t begin = range.begin, end = begin + range.elements;
  auto piece = std::upper_bound(
      from.pieces.begin(), from.pieces.end(), begin,
      [](std::uint64_t at, const Piece& each) { return at < each.begin + each.elements; });
  for (; piece != from.pieces.end() && piece->begin < end; ++piece) {
    const std::uint64_t first = std::max(begin, piece->begin);
    const std::uint64_t last = std::min(end, piece->begin + piece->elements);
    char* const to =
        memory == nullptr ? nullptr : static_cast<char*>(memory) + (first - begin) * element;
    if (to != nullptr && last - first == piece->elements) {
      read_piece(from, *piece, to);
      continue;
    }
    buffer_.resize(largest_piece);
    read_piece(from, *piece, buffer_.data());
    if (to != nullptr) {
      std::memcpy(to, buffer_.data() + (first - piece->begin) * element, (last - first) * element);
    }
  }
}

}  // namespace hocket::training::storage
