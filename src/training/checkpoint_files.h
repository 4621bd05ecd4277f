// Reads the tensors of a checkpoint, and checks every byte that it reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint_manifest.h"
#include "training/storage_file.h"

namespace hocket::training::storage {

/// The manifest of the checkpoint at a path.
std::string manifest_bytes(const std::string& path);

class CheckpointFiles {
 public:
  CheckpointFiles(std::string path, Manifest manifest)
      : path_(std::move(path)),
        manifest_(std::move(manifest)),
        was_checked_(manifest_.file_bytes.size()) {}

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  /// The tensor that the range, which is checked, asks for. Throws Failure if it is missing, or has
  /// another type, other sizes or other strides.
  const StoredTensor& stored(const TensorRange& range) const;
  /// Reads and checks the pieces in which the range has elements. Writes the range's elements to
  /// its memory, or with null nowhere.
  void read(const TensorRange& range, void* memory);

 private:
  const File& file(std::uint32_t rank);
  void read_piece(const StoredTensor& stored, const Piece& piece, char* memory);

  std::string path_;
  Manifest manifest_;
  std::vector<bool> was_checked_;  // the header and the length of each file
  std::optional<File> open_;       // the file that was read last
  std::uint32_t open_rank_ = 0;
  std::vector<char> buffer_;  // a piece of which only a part is wanted
};

}  // namespace hocket::training::storage
