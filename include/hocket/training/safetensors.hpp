// Files in the safetensors format, which many programs read: named tensors in row-major order.
#pragma once

#include <hocket/training/checkpoint.hpp>
#include <span>
#include <string>
#include <vector>

namespace hocket::training {

struct ExportOptions {
  /// The kinds of tensors that are exported. Their names in the file are without the kind.
  std::vector<std::string> kinds = {"parameter", "buffer"};
  /// The file's metadata.
  Metadata metadata = {};
};

/// Writes tensors of a checkpoint to a file, which replaces an older file of this path in one step.
/// The directory is as for load_checkpoint(). Not collective: one process calls it.
/// Throws as load_checkpoint() does; InvalidArgument also if two tensors would have one name in the
/// file, or the checkpoint has no tensor of these kinds.
void export_safetensors(const std::string& directory, const std::string& path,
                        const ExportOptions& options = {});

/// The same from memory: each range is a whole tensor. A kind in its name is left out.
void write_safetensors(const std::string& path, std::span<const TensorRange> tensors,
                       const Metadata& metadata = {});

struct SafetensorsContents {
  std::vector<Parameter> tensors;  // in the order of the file; row-major
  Metadata metadata;
};

/// What a file has. Throws SystemError if the file cannot be read, or breaks a rule of the format;
/// Mismatch if a tensor has a type that hocket does not have (complex numbers, or less than a
/// byte). The format's BOOL is hocketUint8.
[[nodiscard]] SafetensorsContents read_safetensors(const std::string& path);

/// Reads ranges of tensors from a file, and returns its metadata. The tensor KIND/NAME is NAME in
/// the file. Its strides may be others than the file's, which are row-major. Not collective.
/// Throws Mismatch if a tensor is missing or has another type or other sizes, and as
/// read_safetensors(). All ranges are checked before any memory changes; only an error of reading
/// may leave some ranges changed.
Metadata import_safetensors(const std::string& path, std::span<const TensorRange> ranges);

}  // namespace hocket::training
