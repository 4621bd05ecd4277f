// Data parallel training in one process: a replica of the module in each of several threads.
//
// The slow way, to measure DistributedDataParallel against: in each step the root's parameters are
// copied to all replicas before, and all gradients are added up at the root after, so nothing
// overlaps with the computation, and the root's thread does both alone. Processes with
// DistributedDataParallel do neither.
//
//   hocket::training::DataParallel parallel(net, 4);
//   const at::Tensor loss = parallel.backward(
//       [](NetImpl& net, const at::Tensor& x, const at::Tensor& y) {
//         return torch::mse_loss(net.forward(x), y);
//       },
//       data, target);
//   optimizer.step();                                    // of net's parameters
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace hocket::training {
namespace detail {

using Parts = std::vector<at::Tensor>;  // of each tensor of a batch, the rows of one replica

/// Replicas of one module, of which the first is the root.
class Replicas {
 public:
  explicit Replicas(std::vector<std::shared_ptr<::torch::nn::Module>> modules);
  at::Tensor backward(const std::vector<at::Tensor>& batch, bool loss_is_mean,
                      const std::function<at::Tensor(std::size_t, const Parts&)>& loss);
  at::Tensor forward(const std::vector<at::Tensor>& batch,
                     const std::function<at::Tensor(std::size_t, const Parts&)>& output);

 private:
  void broadcast();
  void gather();
  std::vector<std::shared_ptr<::torch::nn::Module>> modules_;
};

}  // namespace detail

/// Module: the type of the module (of the Impl, if it was made by TORCH_MODULE). Every call begins
/// one thread for each replica and uses libtorch's threads in each: call
/// at::set_num_threads(cores / replicas) before. Random numbers of all threads come from one
/// generator, so their order differs from run to run. Used by one thread at a time.
template <typename Module>
class DataParallel {
 public:
  /// factory makes a module of the same structure; without one root->clone() is called, which needs
  /// torch::nn::Cloneable. The values of its parameters and buffers do not matter.
  /// Throws InvalidArgument if replicas is less than 1, or the factory's modules have other
  /// parameters or buffers than root.
  DataParallel(const std::shared_ptr<Module>& root, int replicas,
               const std::function<std::shared_ptr<Module>()>& factory = {})
      : modules_(make(root, replicas, factory)), replicas_({modules_.begin(), modules_.end()}) {}
  DataParallel(const ::torch::nn::ModuleHolder<Module>& root, int replicas,
               const std::function<std::shared_ptr<Module>()>& factory = {})
      : DataParallel(root.ptr(), replicas, factory) {}

  /// Whether the loss of a part is a mean over its rows (the default) or their sum.
  void set_loss_is_mean(bool mean) { loss_is_mean_ = mean; }

  /// Calls loss(module, parts of the batch...) for every replica, each in a thread, where the parts
  /// are runs of rows (the first dimension), as equal as can be; then backward. Adds the gradients
  /// of all parts to those of the root, which become those of the whole batch's loss. Returns that
  /// loss. Replicas without rows do nothing. The buffers of the root are those that its own part
  /// has made.
  /// Throws what a replica throws, after all have ended; the gradients of the root are then those
  /// of some parts. Throws InvalidArgument if the tensors have different numbers of rows, or none.
  template <typename Loss, typename... Tensors>
  at::Tensor backward(const Loss& loss, const Tensors&... batch) {
    return replicas_.backward(
        {batch...}, loss_is_mean_, [&](std::size_t replica, const detail::Parts& parts) {
          return call(loss, replica, parts, std::index_sequence_for<Tensors...>());
        });
  }
  /// Calls output(module, parts of the batch...) for every replica, each in a thread, without
  /// gradients, and puts the rows of their results together.
  template <typename Output, typename... Tensors>
  at::Tensor forward(const Output& output, const Tensors&... batch) {
    return replicas_.forward({batch...}, [&](std::size_t replica, const detail::Parts& parts) {
      return call(output, replica, parts, std::index_sequence_for<Tensors...>());
    });
  }

 private:
  static std::vector<std::shared_ptr<Module>> make(
      const std::shared_ptr<Module>& root, int replicas,
      const std::function<std::shared_ptr<Module>()>& factory) {
    std::vector<std::shared_ptr<Module>> modules{root};
    for (int i = 1; i < replicas; ++i) {
      modules.push_back(factory ? factory() : std::dynamic_pointer_cast<Module>(root->clone()));
    }
    if (replicas < 1) modules.clear();
    return modules;
  }
  template <typename Function, std::size_t... index>
  at::Tensor call(const Function& function, std::size_t replica, const detail::Parts& parts,
                  std::index_sequence<index...> /*indices*/) {
    return function(*modules_[replica], parts[index]...);
  }

  std::vector<std::shared_ptr<Module>> modules_;
  detail::Replicas replicas_;
  bool loss_is_mean_ = true;
};

template <typename Module>
DataParallel(const ::torch::nn::ModuleHolder<Module>&, int) -> DataParallel<Module>;

}  // namespace hocket::training
