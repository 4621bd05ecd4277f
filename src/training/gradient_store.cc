#include "training/gradient_store.h"

#include <algorithm>
#include <cstring>

#include "training/range_math.h"

namespace hocket::training {

GradientStore::GradientStore(const BucketLayout& layout, Sharding sharding, ShardCut cut, int ranks,
                             int rank)
    : sharding_(sharding),
      rank_(sharding == Sharding::none ? 0 : rank),
      buckets_(layout.buckets()),
      shards_(buckets_, sharding == Sharding::none ? 1 : ranks, cut),
      has_average_(buckets_.size()),
      saved_(buckets_.size()) {
  const auto sizes = pooled() ? shards_.arenas(rank_) : layout.arenas();
  for (const BucketLayout::ArenaSize& arena : sizes) {
    arenas_.emplace(arena.dtype, Memory<std::byte>(arena.bytes));
  }
  if (!pooled()) return;
  std::size_t largest = 0;
  for (const Bucket& bucket : buckets_) largest = std::max(largest, bucket.bytes());
  for (Place& place : places_) place.memory = Memory<std::byte>(largest);
  pool_bytes_ = 2 * largest;
}

void GradientStore::lay_out(const BucketLayout& layout) {
  buckets_ = layout.buckets();
  shards_ = ShardLayout(buckets_, 1, ShardCut::elements);
  has_average_.assign(buckets_.size(), 0);
  saved_.resize(buckets_.size());
  for (auto& [dtype, arena] : arenas_) {
    if (!arena.empty()) std::memset(arena.data(), 0, arena.size());
  }
}

std::size_t GradientStore::own_begin_bytes(std::size_t bucket) const {
  return shards_.begins(bucket)[static_cast<std::size_t>(rank_)] *
         element_bytes(buckets_[bucket].dtype);
}
std::size_t GradientStore::own_bytes(std::size_t bucket) const {
  return own_count(bucket) * element_bytes(buckets_[bucket].dtype);
}

std::byte* GradientStore::own_range(std::size_t bucket) {
  std::byte* const arena = arenas_.at(buckets_[bucket].dtype).data();
  if (pooled()) return arena + shards_.offset(bucket, rank_);
  return arena + buckets_[bucket].offset + own_begin_bytes(bucket);
}

std::byte* GradientStore::address(std::size_t bucket) {
  if (!pooled()) return arenas_.at(buckets_[bucket].dtype).data() + buckets_[bucket].offset;
  Place& place = places_[bucket % 2];
  return place.bucket == bucket && !place.launched ? place.memory.data() : nullptr;
}

std::byte* GradientStore::acquire(std::size_t bucket, std::size_t launched) {
  std::byte* const there = address(bucket);
  if (there != nullptr || !pooled()) return there;
  Place& place = places_[bucket % 2];
  // At most the next bucket to be launched and the one after it have places, so that an early
  // gradient of a later bucket takes no place that an older bucket needs.
  if (bucket < launched || bucket > launched + 1) return nullptr;
  release(place);
  place.bucket = bucket;
  return place.memory.data();
}

void GradientStore::begin(double factor) {
  factor_ = factor;
  adds_ = holds_;
  std::fill(has_average_.begin(), has_average_.end(), holds_ ? 1 : 0);
  if (sharding_ != Sharding::zero1 || !holds_ || is_saved_) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    saved_[b].assign(own_range(b), own_range(b) + own_bytes(b));
  }
  is_saved_ = true;
}

void GradientStore::reduce(std::size_t bucket, Communicator& comm, StreamRef stream) {
  std::byte* const data = address(bucket);
  std::byte* to = data + own_begin_bytes(bucket);
  Place& place = places_[bucket % 2];
  if (pooled()) {
    place.adds = has_average_[bucket] != 0;
    has_average_[bucket] = 1;
    if (!place.adds) to = own_range(bucket);
  }
  check(hocketReduceScatterV(data, to, shards_.counts(bucket).data(), buckets_[bucket].dtype,
                             hocketAvg, comm.get(), stream.get()),
        "hocketReduceScatterV");
  if (!pooled()) return;
  place.reduced.record(stream);
  place.launched = true;
}

/// Waits for the reduction of the bucket in the place, and frees the place.
void GradientStore::release(Place& place) {
  if (place.bucket == no_bucket) return;
  if (place.launched) {
    place.reduced.wait();
    const hocketDataType_t dtype = buckets_[place.bucket].dtype;
    std::byte* const average =
        place.adds ? place.memory.data() + own_begin_bytes(place.bucket) : own_range(place.bucket);
    if (factor_ != 1) scale(average, own_count(place.bucket), dtype, factor_);
    if (place.adds) add(own_range(place.bucket), average, own_count(place.bucket), dtype);
  }
  place.bucket = no_bucket;
  place.launched = false;
}

void GradientStore::finish() {
  if (pooled()) {
    for (Place& place : places_) release(place);
  } else {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const hocketDataType_t dtype = buckets_[b].dtype;
      if (factor_ != 1) scale(own_range(b), own_count(b), dtype, factor_);
      if (is_saved_) add(own_range(b), saved_[b].data(), own_count(b), dtype);
    }
    is_saved_ = false;
  }
  holds_ = sharded();
}

void GradientStore::discard() {
  holds_ = false;
  is_saved_ = false;
}

std::vector<TensorRange> GradientStore::held(const std::vector<Parameter>& parameters) {
  struct Found {
    ShardLayout::Piece piece;
    std::byte* data = nullptr;
  };
  std::vector<Found> found;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const ShardLayout::Piece& piece : shards_.pieces(b, rank_)) {
      found.push_back({piece, own_range(b) + piece.at * element_bytes(buckets_[b].dtype)});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.piece.parameter < b.piece.parameter; });
  std::vector<TensorRange> ranges;
  for (const Found& each : found) {
    ranges.push_back({parameters[static_cast<std::size_t>(each.piece.parameter)], each.piece.begin,
                      each.piece.elements, each.data});
  }
  return ranges;
}

std::size_t GradientStore::arena_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [dtype, arena] : arenas_) bytes += arena.size();
  return bytes;
}

}  // namespace hocket::training
