#include <algorithm>
#include <hocket/training/reduction.hpp>
#include <utility>
#include <vector>

namespace hocket::training {

void AllReduce::begin(const BucketData& bucket, Communicator& comm, StreamRef stream) {
  check(hocketAllReduce(bucket.data, bucket.data, bucket.bucket->elements, bucket.bucket->dtype,
                        op_, comm.get(), stream.get()),
        "hocketAllReduce");
}

BucketLimits limits_by_cost(Communicator& comm, std::size_t bytes, hocketDataType_t dtype) {
  if (comm.ranks() == 1) return {};
  constexpr std::size_t least = std::size_t{64} << 10, most = BucketLimits{}.bytes;
  constexpr float allowance = 1.05F;
  Memory<std::byte> memory(most);
  std::vector<std::pair<std::size_t, float>> costs;  // bytes of a bucket, us of all buckets
  for (std::size_t size = least;; size = std::min(2 * size, most)) {
    const Bucket bucket{.dtype = dtype, .slots = {}, .elements = size / element_bytes(dtype)};
    Group group;
    AllReduce().begin({.bucket = &bucket, .data = memory.data()}, comm, caller_thread);
    const float us = group.simulate_end().value_or(0);
    if (us <= 0) return {};
    costs.emplace_back(size, us * static_cast<float>((bytes + size - 1) / size));
    if (size == most) break;
  }
  const auto cheaper = [](const auto& a, const auto& b) { return a.second < b.second; };
  const float best = std::min_element(costs.begin(), costs.end(), cheaper)->second;
  const auto chosen = std::find_if(costs.begin(), costs.end(), [&](const auto& each) {
    return each.second <= allowance * best;
  });
  return {.first_bytes = std::min(BucketLimits{}.first_bytes, chosen->first),
          .bytes = chosen->first};
}

}  // namespace hocket::training
