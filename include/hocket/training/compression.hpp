// Ways to reduce buckets with fewer bytes. They change the gradients: a model may need other
// settings to learn as well.
#pragma once

#include <cstdint>
#include <hocket/training/reduction.hpp>
#include <memory>

namespace hocket::training {

/// Sends gradients in a 16-bit type: half the bytes of fp32. Ranks add the 16-bit numbers up in
/// fp32 and round once. fp32 buckets only; buckets of other types are reduced in their own type.
/// Converting costs time on the processor, so that this is slower between ranks of one host.
class CompressedAllReduce final : public BucketReduction {
 public:
  /// wire: hocketFloat16 (numbers above 65504 become infinite) or hocketBfloat16.
  explicit CompressedAllReduce(hocketDataType_t wire);
  ~CompressedAllReduce() override;
  void lay_out(std::span<const Parameter> parameters, const BucketLayout& layout) override;
  void begin(const BucketData& bucket, Communicator& comm, StreamRef stream) override;
  void finish(const BucketData& bucket, Communicator& comm, StreamRef stream) override;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

struct PowerSgdOptions {
  int rank = 1;                  // of the approximation of each matrix
  int start_step = 1000;         // before that, gradients are reduced as they are
  double min_compression = 2.0;  // matrices that would shrink less are reduced as they are
  std::uint64_t seed = 0;        // of the first approximation
};

/// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727): the gradient of each matrix is
/// approximated by a product of two thin matrices, which are reduced instead. What the
/// approximation leaves out is added to the next gradient (error feedback); each step starts from
/// the last approximation (warm start). A parameter of n x a x b x ... elements counts as a matrix
/// of n rows. Vectors, and buckets of other types than fp32, are reduced as they are. Memory: the
/// error, as much as the gradients.
class PowerSgd final : public BucketReduction {
 public:
  explicit PowerSgd(const PowerSgdOptions& options = {});
  ~PowerSgd() override;
  void lay_out(std::span<const Parameter> parameters, const BucketLayout& layout) override;
  void begin(const BucketData& bucket, Communicator& comm, StreamRef stream) override;
  void finish(const BucketData& bucket, Communicator& comm, StreamRef stream) override;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace hocket::training
