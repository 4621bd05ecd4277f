// Shards: the part of each bucket that each rank holds.
//
//   bucket, W = 3      | block5.w2        | block5.w1        | block5.ln |
//   ShardCut::elements |---- rank 0 ----|---- rank 1 ----|---- rank 2 ---|
//   ShardCut::parameters
//                      |----- rank 0 -----|----- rank 1 -----|- rank 2 --|
//
// Offsets in buckets stay inside the core: other code sees which pieces of parameters a rank holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hocket/training/buckets.hpp>
#include <hocket/training/parameter.hpp>
#include <span>
#include <vector>

namespace hocket::training {

/// What the ranks share of data-parallel training.
enum class Sharding : std::uint8_t {
  none,   // every rank holds all gradients and all of the optimizer's state
  zero1,  // a rank holds its shard of the averaged gradients and of the optimizer's state
  zero2,  // the same, and memory for gradients is that of a shard and of two buckets
};

/// Where buckets may be cut.
enum class ShardCut : std::uint8_t {
  /// Wherever 64 bytes end: all shards of a bucket have the same size, except that the last ones
  /// may be smaller. For optimizers that treat every element alone.
  elements,
  /// Only between parameters, so that the largest shard of the bucket is as small as possible. For
  /// optimizers that need whole parameters.
  parameters,
};

/// The cut of every bucket of a layout into one range for each rank. The ranges of a bucket follow
/// one another in the order of the ranks and cover the bucket, gaps included; so one
/// hocketReduceScatterV, or one hocketAllGatherV, in place, communicates a bucket. (The variants
/// with equal counts measured no faster, and would need buckets with padding.)
class ShardLayout {
 public:
  ShardLayout() = default;
  ShardLayout(std::span<const Bucket> buckets, int ranks, ShardCut cut);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Elements of each rank, as hocketReduceScatterV takes them.
  [[nodiscard]] std::span<const std::size_t> counts(std::size_t bucket) const;
  /// Where each rank's range begins, in elements from the begin of the bucket.
  [[nodiscard]] std::span<const std::size_t> begins(std::size_t bucket) const;

  /// A run of elements of one parameter in a rank's range.
  struct Piece {
    int parameter = 0;
    std::size_t begin = 0;  // elements from the begin of the parameter
    std::size_t elements = 0;
    std::size_t at = 0;  // elements from the begin of the rank's range
  };
  /// The pieces of a rank's range, in the order of their memory; none is empty.
  [[nodiscard]] std::span<const Piece> pieces(std::size_t bucket, int rank) const;

  /// Where the range of a bucket begins in an arena that holds the rank's ranges of all buckets of
  /// its type, one after another; bytes.
  [[nodiscard]] std::size_t offset(std::size_t bucket, int rank) const;
  /// The bytes of such an arena for each type, in the order of BucketLayout::arenas().
  [[nodiscard]] std::vector<BucketLayout::ArenaSize> arenas(int rank) const;

 private:
  [[nodiscard]] std::size_t index(std::size_t bucket, int rank) const {
    return bucket * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
  }

  int ranks_ = 1;
  std::vector<hocketDataType_t> dtypes_;      // by bucket
  std::vector<std::size_t> counts_, begins_;  // by bucket and rank
  std::vector<std::size_t> offsets_;          // by bucket and rank
  std::vector<std::vector<Piece>> pieces_;    // by bucket and rank
};

/// The bytes that a strategy allocates on a rank, of hocket's memory (see docs/decisions/011).
struct TrainingMemory {
  std::size_t parameter_arena = 0;  // unsharded: 0, the model's own memory
  std::size_t gradient_arena = 0;   // whole, or this rank's shard
  std::size_t gradient_pool = 0;    // zero2: two places of the largest bucket's size
  std::size_t optimizer_state = 0;  // AdamW of hocket: moments, and fp32 parameters of bf16, fp16

  [[nodiscard]] std::size_t total() const {
    return parameter_arena + gradient_arena + gradient_pool + optimizer_state;
  }
};
/// What a rank of that many will allocate for these parameters.
[[nodiscard]] TrainingMemory memory_of(Sharding sharding, std::span<const Parameter> parameters,
                                       int ranks, int rank, const BucketLimits& limits = {},
                                       ShardCut cut = ShardCut::elements);

}  // namespace hocket::training
