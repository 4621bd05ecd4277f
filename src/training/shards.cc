#include <algorithm>
#include <hocket/training/shards.hpp>
#include <map>

namespace hocket::training {
namespace {

/// Where each rank's range begins, and the end of the last one.
using Cuts = std::vector<std::size_t>;

Cuts cut_elements(const Bucket& bucket, std::size_t ranks) {
  const std::size_t unit = bucket_alignment / element_bytes(bucket.dtype);
  const std::size_t units = bucket.elements / unit;
  const std::size_t each = (units + ranks - 1) / ranks * unit;
  Cuts cuts;
  for (std::size_t rank = 0; rank <= ranks; ++rank) {
    cuts.push_back(std::min(rank * each, bucket.elements));
  }
  return cuts;
}

/// Gives each rank as many of the next slots as the limit allows. Empty: the limit is too small.
Cuts fill(const Bucket& bucket, const std::vector<std::size_t>& ends, std::size_t ranks,
          std::size_t limit) {
  Cuts cuts = {0};
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t end = cuts.back();
    while (next < ends.size() && ends[next] - cuts.back() <= limit) end = ends[next++];
    cuts.push_back(end);
  }
  if (cuts.back() != bucket.elements) return {};
  return cuts;
}

/// The least limit with which fill() places every slot; found by bisection.
Cuts cut_between_slots(const Bucket& bucket, std::size_t ranks) {
  std::vector<std::size_t> ends;  // a slot's gap belongs to the rank that holds the slot
  for (std::size_t s = 1; s < bucket.slots.size(); ++s) ends.push_back(bucket.slots[s].begin);
  ends.push_back(bucket.elements);
  std::size_t too_small = 0, enough = bucket.elements;
  while (enough - too_small > 1) {
    const std::size_t middle = too_small + (enough - too_small) / 2;
    (fill(bucket, ends, ranks, middle).empty() ? too_small : enough) = middle;
  }
  return fill(bucket, ends, ranks, enough);
}

std::vector<ShardLayout::Piece> pieces_between(const Bucket& bucket, std::size_t begin,
                                               std::size_t end) {
  std::vector<ShardLayout::Piece> pieces;
  for (const Slot& slot : bucket.slots) {
    const std::size_t from = std::max(slot.begin, begin);
    const std::size_t to = std::min(slot.begin + slot.elements, end);
    if (from >= to) continue;
    pieces.push_back({slot.parameter, from - slot.begin, to - from, from - begin});
  }
  return pieces;
}

}  // namespace

ShardLayout::ShardLayout(std::span<const Bucket> buckets, int ranks, ShardCut cut) : ranks_(ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::map<hocketDataType_t, std::vector<std::size_t>> next;  // of each rank, bytes
  for (const Bucket& bucket : buckets) {
    dtypes_.push_back(bucket.dtype);
    const Cuts cuts =
        cut == ShardCut::elements ? cut_elements(bucket, count) : cut_between_slots(bucket, count);
    std::vector<std::size_t>& offsets = next[bucket.dtype];
    offsets.resize(count);
    for (std::size_t rank = 0; rank < count; ++rank) {
      begins_.push_back(cuts[rank]);
      counts_.push_back(cuts[rank + 1] - cuts[rank]);
      pieces_.push_back(pieces_between(bucket, cuts[rank], cuts[rank + 1]));
      offsets_.push_back(offsets[rank]);
      offsets[rank] += counts_.back() * element_bytes(bucket.dtype);
    }
  }
}

std::span<const std::size_t> ShardLayout::counts(std::size_t bucket) const {
  return {counts_.data() + index(bucket, 0), static_cast<std::size_t>(ranks_)};
}
std::span<const std::size_t> ShardLayout::begins(std::size_t bucket) const {
  return {begins_.data() + index(bucket, 0), static_cast<std::size_t>(ranks_)};
}
std::span<const ShardLayout::Piece> ShardLayout::pieces(std::size_t bucket, int rank) const {
  return pieces_.at(index(bucket, rank));
}
std::size_t ShardLayout::offset(std::size_t bucket, int rank) const {
  return offsets_.at(index(bucket, rank));
}

std::vector<BucketLayout::ArenaSize> ShardLayout::arenas(int rank) const {
  std::vector<BucketLayout::ArenaSize> sizes;
  for (std::size_t bucket = 0; bucket < dtypes_.size(); ++bucket) {
    auto size = std::find_if(sizes.begin(), sizes.end(), [&](const BucketLayout::ArenaSize& each) {
      return each.dtype == dtypes_[bucket];
    });
    if (size == sizes.end()) size = sizes.insert(size, {dtypes_[bucket], 0});
    size->bytes += counts_[index(bucket, rank)] * element_bytes(dtypes_[bucket]);
  }
  return sizes;
}

TrainingMemory memory_of(Sharding sharding, std::span<const Parameter> parameters, int ranks,
                         int rank, const BucketLimits& limits, ShardCut cut) {
  const BucketLayout layout(parameters, reverse_order(parameters.size()), limits);
  const bool sharded = sharding != Sharding::none;
  const ShardLayout shards(layout.buckets(), sharded ? ranks : 1, cut);
  const std::vector<BucketLayout::ArenaSize> own = shards.arenas(sharded ? rank : 0);
  TrainingMemory memory;
  for (const BucketLayout::ArenaSize& arena : layout.arenas()) {
    if (sharded) memory.parameter_arena += arena.bytes;
    if (sharding != Sharding::zero2) memory.gradient_arena += arena.bytes;
  }
  if (sharding == Sharding::zero2) {
    for (const BucketLayout::ArenaSize& arena : own) memory.gradient_arena += arena.bytes;
    std::size_t largest = 0;
    for (const Bucket& bucket : layout.buckets()) largest = std::max(largest, bucket.bytes());
    memory.gradient_pool = 2 * largest;
  }
  for (const BucketLayout::ArenaSize& arena : own) {
    const std::size_t width = element_bytes(arena.dtype);
    const std::size_t state = width == 2 ? 3 * sizeof(float) : 2 * width;
    memory.optimizer_state += arena.bytes / width * state;
  }
  return memory;
}

}  // namespace hocket::training
