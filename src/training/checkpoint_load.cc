#include <fmt/format.h>

#include <cstdint>
#include <hocket/training/agreement.hpp>
#include <set>

#include "training/checkpoint_directory.h"
#include "training/checkpoint_files.h"
#include "training/dense_tensor.h"
#include "training/storage_failure.h"

namespace hocket::training {
namespace {

using namespace storage;

constexpr const char* load_operation = "hocket::training::load_checkpoint";
constexpr const char* reader_operation = "hocket::training::CheckpointReader";

TensorRange checked_range(const TensorRange& range) {
  TensorRange result = range;
  result.tensor = checked(std::move(result.tensor));
  require_range(result);
  return result;
}

std::string join(const std::string& directory, const std::string& name) {
  return name.empty() ? directory : directory + "/" + name;
}

/// Rank 0 reads the manifest for all ranks.
CheckpointFiles open_for_all(Communicator& comm, const std::string& directory, std::string* name) {
  std::string bytes;
  run_on_all(comm, load_operation, [&] {
    if (comm.rank() != 0) return;
    *name = choose_checkpoint(directory);
    bytes = manifest_bytes(join(directory, *name));
  });
  *name = broadcast_bytes(comm, *name);
  bytes = broadcast_bytes(comm, bytes);
  const std::string path = join(directory, *name);
  Manifest manifest;
  locally(load_operation, [&] { manifest = decode(bytes, path + "/manifest"); });
  return {path, std::move(manifest)};
}

/// Options that ranks give differently: the strictest on any rank counts for all.
LoadOptions strictest_of_all(Communicator& comm, const LoadOptions& options) {
  const auto strictness = [](Unasked unasked) -> std::uint8_t {
    switch (unasked) {
      case Unasked::allowed:
        return 0;
      case Unasked::other_kinds:
        return 1;
      default:
        return 2;
    }
  };
  constexpr Unasked by_strictness[] = {Unasked::allowed, Unasked::other_kinds, Unasked::refused};
  std::uint8_t most[] = {strictness(options.unasked),
                         static_cast<std::uint8_t>(options.verify_first ? 1 : 0)};
  comm.all_reduce(most, hocketMax);
  return {by_strictness[most[0]], most[1] == 1};
}

[[noreturn]] void refuse_unasked(const std::string& path, const Parameter& tensor,
                                 Unasked allowed) {
  const std::string remedy =
      allowed == Unasked::refused
          ? ". Unasked::other_kinds and Unasked::allowed ignore such tensors"
          : fmt::format(
                ", though ranks ask for other tensors of kind '{}'. It is of another "
                "model; Unasked::allowed ignores such tensors",
                kind_of(tensor.name));
  throw Mismatch(load_operation,
                 fmt::format("checkpoint '{}' has tensor {}, and no rank asks for it{}", path,
                             describe_stored(tensor), remedy));
}

/// Collective: a kind counts as asked for if any rank asks for a tensor of it.
void require_asked(Communicator& comm, const CheckpointFiles& files,
                   const std::vector<TensorRange>& ranges, Unasked allowed) {
  const std::vector<StoredTensor>& tensors = files.manifest().tensors;
  if (tensors.empty() || allowed == Unasked::allowed) return;
  std::vector<std::uint8_t> asked(tensors.size(), 0);
  for (const TensorRange& range : ranges) {
    asked[static_cast<std::size_t>(&files.stored(range) - tensors.data())] = 1;
  }
  comm.all_reduce(asked, hocketMax);
  std::set<std::string> kinds;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (asked[t] == 1) kinds.insert(kind_of(tensors[t].tensor.name));
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const bool is_of_asked_kind = kinds.contains(kind_of(tensors[t].tensor.name));
    if (asked[t] == 0 && (allowed == Unasked::refused || is_of_asked_kind)) {
      refuse_unasked(files.path(), tensors[t].tensor, allowed);
    }
  }
}

}  // namespace

LoadedCheckpoint load_checkpoint(Communicator& comm, const std::string& directory,
                                 std::span<const TensorRange> ranges, const LoadOptions& options) {
  std::vector<TensorRange> own;
  run_on_all(comm, load_operation, [&] {
    for (const TensorRange& range : ranges) own.push_back(checked_range(range));
  });
  std::string name;
  CheckpointFiles files = open_for_all(comm, directory, &name);
  run_on_all(comm, load_operation, [&] {
    for (const TensorRange& range : own) (void)files.stored(range);
  });
  const LoadOptions agreed = strictest_of_all(comm, options);
  require_asked(comm, files, own, agreed.unasked);
  if (agreed.verify_first) {
    run_on_all(comm, load_operation, "The memory of all ranks is unchanged", [&] {
      for (const TensorRange& range : own) files.read(range, nullptr);
    });
  }
  run_on_all(comm, load_operation, "The memory of the ranges may have changed", [&] {
    for (const TensorRange& range : own) files.read(range, range.data);
  });
  if (name.empty()) name = directory;
  return {std::move(name), files.manifest().metadata};
}

std::string newest_checkpoint(const std::string& directory) {
  std::string path;
  locally("hocket::training::newest_checkpoint", [&] {
    if (has_checkpoint(directory)) path = join(directory, choose_checkpoint(directory));
  });
  return path;
}

struct CheckpointReader::Body {
  explicit Body(CheckpointFiles from) : files(std::move(from)) {
    for (const StoredTensor& stored : files.manifest().tensors) tensors.push_back(stored.tensor);
  }
  CheckpointFiles files;
  std::vector<Parameter> tensors;
};

CheckpointReader::CheckpointReader(const std::string& directory) {
  locally(reader_operation, [&] {
    const std::string path = join(directory, choose_checkpoint(directory));
    body_ = std::make_unique<Body>(
        CheckpointFiles(path, decode(manifest_bytes(path), path + "/manifest")));
  });
}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

const std::string& CheckpointReader::path() const { return body_->files.path(); }
const std::vector<Parameter>& CheckpointReader::tensors() const { return body_->tensors; }
const std::vector<Metadata>& CheckpointReader::metadata() const {
  return body_->files.manifest().metadata;
}

void CheckpointReader::read(const TensorRange& range) {
  locally(reader_operation, [&] {
    const TensorRange own = checked_range(range);
    body_->files.read(own, own.data);
  });
}

}  // namespace hocket::training
