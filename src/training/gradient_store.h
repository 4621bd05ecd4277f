// Where the gradients of a reducer lie.
//
//   none, zero1    an arena with every bucket
//   zero2          a pool of two places; bucket k lies in place k % 2 from the arrival of its first
//                  gradient to the end of its reduction; and an arena with this rank's shards
//
// In zero1 a reduction leaves its result in this rank's part of the bucket; the rest of the bucket
// is void then. In zero2 it leaves the result in the arena of shards.
//
// Held gradients are the averages that this rank has. They stay until they are discarded: a further
// backward adds its averages to them. Without shards the program does that, because it holds the
// places itself.
#pragma once

#include <cstddef>
#include <hocket/hocket.hpp>
#include <hocket/training/buckets.hpp>
#include <hocket/training/shards.hpp>
#include <hocket/training/tensor_range.hpp>
#include <map>
#include <vector>

namespace hocket::training {

class GradientStore {
 public:
  GradientStore(const BucketLayout& layout, Sharding sharding, ShardCut cut, int ranks, int rank);

  /// Other buckets in the arenas, whose sizes stay; all gradients become zero. Only without shards.
  void lay_out(const BucketLayout& layout);

  /// Where a bucket lies; null: it is not in the pool.
  [[nodiscard]] std::byte* address(std::size_t bucket);
  /// Brings the bucket into the pool if it is not there, and waits for the place's reduction. Null:
  /// the place belongs to an older bucket that is not launched. launched: buckets of this backward.
  std::byte* acquire(std::size_t bucket, std::size_t launched);

  /// Whether acquire() would wait for a reduction.
  [[nodiscard]] bool must_wait(std::size_t bucket) const {
    const Place& place = places_[bucket % 2];
    return pooled() && place.launched;
  }

  /// A backward begins, which may write to the places. Averages will be multiplied by factor.
  void begin(double factor);
  /// Begins the reduction of a bucket into shards, on the stream.
  void reduce(std::size_t bucket, Communicator& comm, StreamRef stream);
  /// All reductions have ended; in zero2 those of the buckets in the pool, which leave the pool.
  /// Multiplies the averages by the factor, and adds what was held before.
  void finish();
  void discard();
  /// Whether this backward adds to what is held.
  [[nodiscard]] bool adds() const { return adds_; }

  [[nodiscard]] bool sharded() const { return sharding_ != Sharding::none; }
  [[nodiscard]] bool pooled() const { return sharding_ == Sharding::zero2; }
  [[nodiscard]] std::vector<TensorRange> held(const std::vector<Parameter>& parameters);
  [[nodiscard]] const ShardLayout& shards() const { return shards_; }
  /// What was allocated, without what a second backward before a step needs.
  [[nodiscard]] std::size_t arena_bytes() const;
  [[nodiscard]] std::size_t pool_bytes() const { return pool_bytes_; }

 private:
  static constexpr std::size_t no_bucket = static_cast<std::size_t>(-1);
  struct Place {
    Memory<std::byte> memory{0};
    std::size_t bucket = no_bucket;
    bool launched = false;
    bool adds = false;  // its part is added to the shard at the end
    Event reduced = Event::create();
  };

  /// This rank's part of the bucket, where its average lies.
  [[nodiscard]] std::byte* own_range(std::size_t bucket);
  [[nodiscard]] std::size_t own_count(std::size_t bucket) const {
    return shards_.counts(bucket)[static_cast<std::size_t>(rank_)];
  }
  /// Where this rank's part begins in the bucket.
  [[nodiscard]] std::size_t own_begin_bytes(std::size_t bucket) const;
  [[nodiscard]] std::size_t own_bytes(std::size_t bucket) const;
  void release(Place& place);

  const Sharding sharding_;
  const int rank_;
  std::vector<Bucket> buckets_;
  ShardLayout shards_;
  std::map<hocketDataType_t, Memory<std::byte>> arenas_;
  Place places_[2];
  std::size_t pool_bytes_ = 0;
  double factor_ = 1;
  bool holds_ = false;  // averages that were not discarded
  bool adds_ = false;
  std::vector<char> has_average_;  // zero2, by bucket: the shard has one already
  bool is_saved_ = false;
  std::vector<std::vector<std::byte>> saved_;  // zero1, by bucket: averages held before
};

}  // namespace hocket::training
