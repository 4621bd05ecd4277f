// Buckets: which parameters are communicated together, and where each lies.
#pragma once

#include <cstddef>
#include <hocket/training/parameter.hpp>
#include <span>
#include <vector>

namespace hocket::training {

/// A bucket is full when it has this many bytes. The first bucket is smaller, so that communication
/// starts early in backward. (The defaults of PyTorch's DistributedDataParallel.)
struct BucketLimits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
};

/// A parameter's place in a bucket.
struct Slot {
  int parameter = 0;      // its index in the model
  std::size_t begin = 0;  // elements from the begin of the bucket
  std::size_t elements = 0;
};

/// Parameters of one type that one call communicates.
///
///   | slot 0 | gap | slot 1 | gap | ...
///
/// Every slot begins at a multiple of bucket_alignment bytes, and so does the next bucket.
struct Bucket {
  hocketDataType_t dtype = hocketFloat32;
  std::vector<Slot> slots;
  std::size_t elements = 0;  // gaps included
  std::size_t offset = 0;    // where the bucket begins in the arena of its type, in bytes

  [[nodiscard]] std::size_t bytes() const noexcept { return elements * element_bytes(dtype); }
};

inline constexpr std::size_t bucket_alignment = 64;  // bytes: a cache line, and a vector

/// The buckets of a model, in the order in which they are communicated.
class BucketLayout {
 public:
  /// Puts the parameters into buckets in this order (a permutation of their indices). Each type has
  /// buckets of its own. A bucket's place in the order of communication is that of its last
  /// parameter.
  BucketLayout(std::span<const Parameter> parameters, std::span<const int> order,
               const BucketLimits& limits);

  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  struct Place {
    int bucket = 0;
    int slot = 0;
  };
  [[nodiscard]] Place place(int parameter) const {
    return places_.at(static_cast<std::size_t>(parameter));
  }
  /// The types that occur, and the bytes of all buckets of each: the arenas that they need.
  struct ArenaSize {
    hocketDataType_t dtype = hocketFloat32;
    std::size_t bytes = 0;
  };
  [[nodiscard]] const std::vector<ArenaSize>& arenas() const noexcept { return arenas_; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // by parameter
  std::vector<ArenaSize> arenas_;
};

/// The order in which backward completes the gradients of most models: the reverse of the order of
/// the parameters.
[[nodiscard]] std::vector<int> reverse_order(std::size_t parameters);

}  // namespace hocket::training
