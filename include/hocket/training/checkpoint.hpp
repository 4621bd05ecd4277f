// Checkpoints: the state of a training job in files. A job of any number of ranks loads them again,
// with any cut of the tensors into ranges.
//
//   std::vector<TensorRange> ranges = ...;          // what this rank holds of each tensor
//   save_checkpoint(comm, "run/checkpoints", ranges, {{"step", "1200"}}, {.label = "step-1200"});
//
//   const LoadedCheckpoint loaded = load_checkpoint(comm, "run/checkpoints", ranges);
//   step = std::stoll(loaded.metadata[0].at("step"));
//
// A directory of checkpoints:
//
//   run/checkpoints/latest                       the name of the newest checkpoint
//   run/checkpoints/000007-step-1200/manifest    which tensors, and where their elements are
//   run/checkpoints/000007-step-1200/rank-00000  what rank 0 wrote, and so on
//
// docs/protocol/checkpoints.md describes every byte.
#pragma once

#include <hocket/hocket.hpp>
#include <hocket/training/tensor_range.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hocket::training {

// The name of a tensor in a checkpoint is KIND/NAME, such as "parameter/block.0.weight",
// "buffer/norm.mean" or "optimizer.exp_avg/block.0.weight". A name without '/' has the empty kind.
// Tensors of checkpoints have any type of hocketDataType_t (torch's bool is hocketUint8). Their
// strides are those of a dense tensor: no element twice, no gaps. Elements are counted in the order
// of memory.

/// Small values beside the tensors: the step, the state of a sampler or of a random generator. At
/// most 64 MiB for each rank.
using Metadata = std::map<std::string, std::string>;

struct SaveOptions {
  /// The end of the checkpoint's name, after its number: "step-1200". Letters, digits, '.', '-',
  /// '_'; at most 100.
  std::string label = "checkpoint";
  /// So many checkpoints stay in the directory, the new one included; the others, which have the
  /// lowest numbers, are removed after the new one is complete. 0: all stay.
  int keep = 0;
};

/// Collective. Writes a new checkpoint into the directory, and returns its name there
/// ("000007-step-1200"). The directory exists; it is one directory for all ranks, though each rank
/// may have another path to it. One job at a time writes to it.
///
/// The ranges of all ranks together have every element of every tensor. Elements that several ranks
/// hold (with DDP: all) are equal on these ranks, and are written once; the ranks divide them. The
/// metadata of all ranks are kept.
///
/// The checkpoint becomes visible by a rename, after all ranks have written, checksummed and synced
/// their part; then `latest` is replaced. Until then the earlier checkpoints are untouched. If a
/// rank fails or dies, what was written is removed, if rank 0 lives, else by the next save.
///
/// Throws on all ranks, with the first rank that failed as culprit: InvalidArgument for wrong
/// arguments, or elements that no rank holds; Mismatch if ranks describe a tensor differently;
/// SystemError if a file cannot be written, with its path and the system's reason.
std::string save_checkpoint(Communicator& comm, const std::string& directory,
                            std::span<const TensorRange> ranges, const Metadata& metadata,
                            const SaveOptions& options = {});

/// Which tensors a checkpoint may have that no rank asks for.
enum class Unasked {
  other_kinds,  // those of kinds of which no rank asks for a tensor
  allowed,      // any
  refused,      // none
};

struct LoadOptions {
  Unasked unasked = Unasked::other_kinds;
  /// All ranks read and check everything before any rank changes its memory, and then read again.
  /// Without it a load reads once, and an error may leave some ranges changed.
  bool verify_first = true;
};

struct LoadedCheckpoint {
  std::string name;                // "000007-step-1200"
  std::vector<Metadata> metadata;  // of each rank of the job that saved; at least one
};

/// Collective. Reads the ranges from a checkpoint: that which `latest` names, if the directory is
/// one of checkpoints; else the directory is a checkpoint itself. Ranks ask for any ranges of any
/// tensors, and each reads the pieces (of at most 1 MiB) in which its ranges lie.
///
/// Throws on all ranks, with the first rank that failed as culprit: Mismatch if a tensor is missing
/// or has another type, other sizes or other strides in the checkpoint, with both descriptions, and
/// if the checkpoint has a tensor that it may not have, or another version; SystemError if a file
/// is missing, cannot be read or is damaged; InvalidArgument for wrong arguments. The memory of the
/// ranges is unchanged, unless the message says that it may have changed.
LoadedCheckpoint load_checkpoint(Communicator& comm, const std::string& directory,
                                 std::span<const TensorRange> ranges,
                                 const LoadOptions& options = {});

/// The path of the checkpoint that load_checkpoint() would read; empty: the directory has none.
/// Throws SystemError if the directory cannot be read. Not collective.
[[nodiscard]] std::string newest_checkpoint(const std::string& directory);

/// Reads a checkpoint without a communicator: for programs that convert or inspect it. Used by one
/// thread at a time. Calls throw as load_checkpoint() does.
class CheckpointReader {
 public:
  /// The directory is as for load_checkpoint().
  explicit CheckpointReader(const std::string& directory);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  [[nodiscard]] const std::string& path() const;
  /// In the order of their names.
  [[nodiscard]] const std::vector<Parameter>& tensors() const;
  [[nodiscard]] const std::vector<Metadata>& metadata() const;
  /// Reads the range, whose memory may have changed if the call throws.
  void read(const TensorRange& range);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace hocket::training
