#include <algorithm>
#include <hocket/training/buckets.hpp>
#include <map>
#include <numeric>

namespace hocket::training {
namespace {

std::size_t aligned(std::size_t elements, hocketDataType_t dtype) {
  const std::size_t unit = bucket_alignment / element_bytes(dtype);
  return (elements + unit - 1) / unit * unit;
}

/// Appends the parameter to the bucket, or to a new bucket if that is full.
class Filler {
 public:
  explicit Filler(const BucketLimits& limits) : limits_(limits) {}

  void add(int index, const Parameter& parameter, std::size_t position) {
    Filling& last = of_[parameter.dtype];
    const std::size_t limit = last.count <= 1 ? limits_.first_bytes : limits_.bytes;
    if (last.count == 0 || buckets_[last.bucket].bucket.bytes() >= limit) {
      last.bucket = buckets_.size();
      ++last.count;
      buckets_.emplace_back().bucket.dtype = parameter.dtype;
    }
    Positioned& into = buckets_[last.bucket];
    const std::size_t begin = aligned(into.bucket.elements, parameter.dtype);
    into.bucket.slots.push_back({index, begin, parameter.elements()});
    into.bucket.elements = begin + parameter.elements();
    into.last = position;
  }
  /// In the order of their last parameters.
  std::vector<Bucket> take() {
    std::sort(buckets_.begin(), buckets_.end(),
              [](const Positioned& a, const Positioned& b) { return a.last < b.last; });
    std::vector<Bucket> sorted;
    for (Positioned& each : buckets_) sorted.push_back(std::move(each.bucket));
    return sorted;
  }

 private:
  struct Positioned {
    Bucket bucket;
    std::size_t last = 0;  // the position of its last parameter in the order
  };
  struct Filling {
    std::size_t bucket = 0;  // the latest bucket of the type
    int count = 0;           // how many buckets the type has
  };
  const BucketLimits limits_;
  std::vector<Positioned> buckets_;
  std::map<hocketDataType_t, Filling> of_;
};

}  // namespace

BucketLayout::BucketLayout(std::span<const Parameter> parameters, std::span<const int> order,
                           const BucketLimits& limits)
    : places_(parameters.size()) {
  Filler filler(limits);
  for (std::size_t i = 0; i < order.size(); ++i) {
    filler.add(order[i], parameters[static_cast<std::size_t>(order[i])], i);
  }
  buckets_ = filler.take();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    bucket.elements = aligned(bucket.elements, bucket.dtype);
    auto arena = std::find_if(arenas_.begin(), arenas_.end(),
                              [&](const ArenaSize& size) { return size.dtype == bucket.dtype; });
    if (arena == arenas_.end()) arena = arenas_.insert(arena, {bucket.dtype, 0});
    bucket.offset = arena->bytes;
    arena->bytes += bucket.bytes();
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      places_[static_cast<std::size_t>(bucket.slots[s].parameter)] = {static_cast<int>(b),
                                                                      static_cast<int>(s)};
    }
  }
}

std::vector<int> reverse_order(std::size_t parameters) {
  std::vector<int> order(parameters);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

}  // namespace hocket::training
