// Batch normalisation over the batches of all ranks.
//
//   auto norms = std::make_shared<hocket::Communicator>(comm.duplicate());   // once for a model
//   struct Net : torch::nn::Module {
//     hocket::training::SyncBatchNorm norm{torch::nn::BatchNormOptions(64), norms};
//     ...
//
// With few samples on a rank, the mean and variance of its own batch are noisy. SyncBatchNorm takes
// those of all ranks' samples together.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <hocket/hocket.hpp>
#include <memory>
#include <ostream>

namespace hocket::training {

/// Takes the place of torch::nn::BatchNorm1d, 2d and 3d, with the same options, parameters, buffers
/// and names.
///
/// In training every rank's forward is collective (an all-gather of 2 num_features + 1 doubles),
/// and so is its backward (an all-reduce of 2 num_features doubles). The ranks may have different
/// numbers of samples, and none. The running statistics are equal on all ranks. Gradients of the
/// parameters are those of the own samples; DistributedDataParallel averages them. In evaluation it
/// does what BatchNorm does.
class SyncBatchNormImpl : public ::torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  /// The communicator is used for nothing else while the model trains; all SyncBatchNorm of a model
  /// may share one.
  SyncBatchNormImpl(const ::torch::nn::BatchNormOptions& options,
                    std::shared_ptr<Communicator> comm);
  /// With tensors that exist, such as those of a BatchNorm.
  SyncBatchNormImpl(const ::torch::nn::BatchNormOptions& options,
                    std::shared_ptr<Communicator> comm, const at::Tensor& weight,
                    const at::Tensor& bias, const at::Tensor& running_mean,
                    const at::Tensor& running_var, const at::Tensor& num_batches_tracked);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  /// input: samples x num_features x ...; a floating-point type.
  /// In training it throws, on all ranks, InvalidArgument if the input of a rank has other sizes or
  /// another type, or all ranks together have less than 2 values for each feature. Backward with
  /// create_graph throws c10::Error.
  at::Tensor forward(const at::Tensor& input);

  ::torch::nn::BatchNormOptions options;
  at::Tensor weight, bias;               // undefined without affine
  at::Tensor running_mean, running_var;  // undefined without track_running_stats
  at::Tensor num_batches_tracked;

 private:
  at::Tensor normalise(const at::Tensor& input);
  void update_statistics(const at::Tensor& mean, const at::Tensor& variance, double count);
  std::shared_ptr<Communicator> comm_;
};
TORCH_MODULE(SyncBatchNorm);

/// Replaces each BatchNorm1d, 2d and 3d that is an element of a torch::nn::Sequential, at any depth
/// of the module, by a SyncBatchNorm with the same tensors (so an optimizer that has them goes on
/// to work). Returns how many it has replaced.
///
/// C++ cannot replace other BatchNorms: a member of type torch::nn::BatchNorm2d can hold nothing
/// else, and its forward is not virtual. Throws InvalidArgument, and changes nothing, if the module
/// has such members: declare them as SyncBatchNorm.
int convert_sync_batchnorm(::torch::nn::Module& module, const std::shared_ptr<Communicator>& comm);

}  // namespace hocket::training
