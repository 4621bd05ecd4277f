// How the gradients of a bucket are reduced: what PyTorch calls a communication hook.
#pragma once

#include <cstddef>
#include <hocket/hocket.hpp>
#include <hocket/training/buckets.hpp>
#include <span>

namespace hocket::training {

/// A bucket whose gradients are complete.
struct BucketData {
  int index = 0;  // its place in the order of communication
  const Bucket* bucket = nullptr;
  std::byte* data = nullptr;  // bucket->elements elements of bucket->dtype
};

/// A way to reduce buckets. A reducer calls begin() for every bucket, in the order of their
/// indices, while backward computes, and finish() for every bucket, in the same order, when
/// backward has ended. After finish() the bucket's elements are the average over the ranks (or what
/// the program wants instead of that: the same on every rank).
///
/// All ranks make these calls in the same order, so both may begin collectives of the communicator
/// that they are given. begin() puts them on the stream (which is the calling thread where all
/// buckets take little time, see ReducerOptions); it may be that of another communicator for the
/// next bucket, because two buckets are in flight. finish() may also call them in the calling
/// thread. Operations on the stream that begin() put there have ended when finish() is called. An
/// exception that either throws ends the reducer, and the other ranks receive an error too.
class BucketReduction {
 public:
  virtual ~BucketReduction() = default;
  /// Called before the first bucket, and again if buckets change: what was kept for each bucket is
  /// void. Not collective.
  virtual void lay_out(std::span<const Parameter> parameters, const BucketLayout& layout) {
    (void)parameters, (void)layout;
  }
  virtual void begin(const BucketData& bucket, Communicator& comm, StreamRef stream) = 0;
  virtual void finish(const BucketData& bucket, Communicator& comm, StreamRef stream) {
    (void)bucket, (void)comm, (void)stream;
  }
};

/// One all-reduce in the bucket's own type, in place: what a reducer does without a
/// BucketReduction.
class AllReduce final : public BucketReduction {
 public:
  /// op: hocketAvg or hocketSum.
  explicit AllReduce(hocketRedOp_t op = hocketAvg) : op_(op) {}
  void begin(const BucketData& bucket, Communicator& comm, StreamRef stream) override;

 private:
  hocketRedOp_t op_;
};

/// Limits for a model whose gradients have this many bytes of the type: the smallest size of
/// buckets (64 KiB times a power of two, or 25 MiB) with which one all-reduce for each bucket is
/// expected to take, in all, at most 1.05 times as long as with the best size. The expectation is
/// that of hocketGroupSimulateEnd(), from the figures that were measured when the communicator was
/// made. Small buckets begin early in backward, and the last bucket leaves little to wait for; with
/// buckets that are too small the latency of each all-reduce adds up.
/// Not collective; equal on all ranks. The default limits with 1 rank, or if no time is known.
[[nodiscard]] BucketLimits limits_by_cost(Communicator& comm, std::size_t bytes,
                                          hocketDataType_t dtype = hocketFloat32);

}  // namespace hocket::training
