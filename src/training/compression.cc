#include <hocket/training/compression.hpp>
#include <vector>

#include "training/range_math.h"

namespace hocket::training {

struct CompressedAllReduce::Body {
  explicit Body(hocketDataType_t type) : wire(type) {}

  const hocketDataType_t wire;
  AllReduce plain;
  std::vector<Memory<std::uint16_t>> narrowed;  // by bucket; empty: the bucket is not fp32
};

CompressedAllReduce::CompressedAllReduce(hocketDataType_t wire)
    : body_(std::make_unique<Body>(wire)) {
  if (wire != hocketFloat16 && wire != hocketBfloat16) {
    throw InvalidArgument("hocket::training::CompressedAllReduce",
                          "gradients can be sent as hocketFloat16 or hocketBfloat16");
  }
}
CompressedAllReduce::~CompressedAllReduce() = default;

void CompressedAllReduce::lay_out(std::span<const Parameter>, const BucketLayout& layout) {
  body_->narrowed.clear();
  for (const Bucket& bucket : layout.buckets()) {
    body_->narrowed.emplace_back(bucket.dtype == hocketFloat32 ? bucket.elements : 0);
  }
}

void CompressedAllReduce::begin(const BucketData& bucket, Communicator& comm, StreamRef stream) {
  Memory<std::uint16_t>& narrowed = body_->narrowed[static_cast<std::size_t>(bucket.index)];
  if (bucket.bucket->dtype != hocketFloat32) return body_->plain.begin(bucket, comm, stream);
  narrow(reinterpret_cast<const float*>(bucket.data), narrowed.data(), narrowed.size(),
         body_->wire);
  check(hocketAllReduce(narrowed.data(), narrowed.data(), narrowed.size(), body_->wire, hocketAvg,
                        comm.get(), stream.get()),
        "hocketAllReduce");
}

void CompressedAllReduce::finish(const BucketData& bucket, Communicator&, StreamRef) {
  const Memory<std::uint16_t>& narrowed = body_->narrowed[static_cast<std::size_t>(bucket.index)];
  widen(narrowed.data(), reinterpret_cast<float*>(bucket.data), narrowed.size(), body_->wire);
}

}  // namespace hocket::training
