// Data-parallel training of libtorch modules.
//
//   auto comm = hocket::Communicator::from_environment();
//   auto net = std::make_shared<Net>();
//   hocket::training::DistributedDataParallel ddp(*net, comm);
//   torch::optim::AdamW optimizer(net->parameters());
//   for (auto& batch : loader) {                         // each rank: other batches
//     optimizer.zero_grad();
//     auto output = ddp.run([&] { return net->forward(batch.data); });
//     loss(output, batch.target).backward();             // gradients are averaged meanwhile
//     optimizer.step();                                  // the same on every rank
//   }
#pragma once

#include <concepts>
#include <functional>
#include <hocket/training/gradients.hpp>
#include <hocket/training/join.hpp>
#include <hocket/training/sharded_parameters.hpp>
#include <hocket/training/torch/tensors.hpp>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace hocket::training {

struct DdpOptions {
  BucketLimits limits{};
  /// Before each forward that synchronizes, the buffers of rank 0 (running statistics of
  /// normalisation, for example) overwrite those of the other ranks.
  bool broadcast_buffers = true;
  /// See ReducerOptions. A parameter that the outputs of a forward do not depend on holds no bucket
  /// back, unless the graph has nodes of custom functions (checkpointed parts, for example), which
  /// hide what they use.
  bool find_unused_parameters = false;
  bool static_graph = false;
  /// See ReducerOptions: ranks may run different numbers of backwards under no_sync().
  bool uneven_accumulation = false;
  /// See ReducerOptions: OnNonFinite::keep for a loop with LossScaler.
  OnNonFinite on_non_finite = OnNonFinite::error;
  /// See ReducerOptions.
  std::shared_ptr<BucketReduction> reduction{};
  /// ZeRO-1 and ZeRO-2: see zero.hpp. Optimizers of hocket only, over parameters().
  Sharding sharding = Sharding::none;
  ShardCut cut = ShardCut::elements;
};

/// See JoinOptions.
struct DdpJoinOptions {
  bool divide_by_active = false;
  /// Needed with sharding. An optimizer of libtorch finds the averages in .grad on all ranks.
  std::function<void()> update{};
};

/// Keeps replicas of a module equal on all ranks: averages the gradients of all ranks while
/// backward computes.
///
/// The constructor broadcasts the parameters and buffers of rank 0 and takes over the gradients:
/// after the first backward each parameter's .grad is a tensor over memory of this object, which
/// later backwards write to. Such a tensor may be kept as long as this object exists; clone it to
/// keep its values. Optimizers work unchanged, and zero_grad() with and without set_to_none.
///
/// Trainable parameters are those with requires_grad when the constructor runs. A parameter that
/// occurs under two names (tied weights) is reduced once, under the first name.
///
/// The gradients of a backward are reduced if it began in an output of run(). Several forwards may
/// run before one backward, and several backwards may follow one another: each is reduced, and
/// .grad is then the sum of their averages.
///
/// Used by one thread at a time; every rank makes the same calls. backward() throws hocket::Error
/// as GradientReducer::end() does, c10::Error for gradients that cannot be reduced (sparse; with
/// create_graph). If backward throws on one rank, it throws on the others too.
class DistributedDataParallel {
 public:
  /// Collective. The communicator is duplicated, and may be destroyed afterwards. The module must
  /// outlive this object.
  /// Throws on all ranks: hocket::Mismatch if their modules differ; InvalidArgument if on any rank
  /// a parameter has a type, a layout or a device that cannot be reduced, if a frozen parameter or
  /// a buffer is sparse or on another device than the CPU, or if the module has no trainable
  /// parameter.
  DistributedDataParallel(::torch::nn::Module& module, Communicator& comm,
                          const DdpOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(DistributedDataParallel&&) noexcept;
  DistributedDataParallel& operator=(DistributedDataParallel&&) = delete;

  /// Runs a forward, and returns its result: anything that for_each_tensor() understands. The
  /// gradients are complete on all ranks when the backward of any of these tensors returns. Without
  /// gradients enabled (torch::NoGradGuard) it only calls forward.
  template <std::invocable Forward>
  auto run(Forward&& forward) {
    static_assert(!std::is_void_v<std::invoke_result_t<Forward>>,
                  "hocket: the forward must return its output, whose backward ends the step");
    const bool learns = begin_forward();
    auto output = std::forward<Forward>(forward)();
    if (learns) {
      std::vector<at::Tensor> tensors;
      for_each_tensor(output, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
      end_forward(tensors);
    }
    return output;
  }
  /// run() of module->forward(arguments...).
  template <typename Module, typename... Arguments>
  requires requires(Module& module, Arguments&&... arguments) {
    module->forward(std::forward<Arguments>(arguments)...);
  }
  auto operator()(Module&& module, Arguments&&... arguments) {
    return run([&] { return module->forward(std::forward<Arguments>(arguments)...); });
  }

  /// While such an object exists, backwards only add to the gradients of this rank. The next
  /// backward without it reduces the sum. It holds for forwards that run meanwhile.
  class NoSync {
   public:
    NoSync(NoSync&&) noexcept = default;
    NoSync& operator=(NoSync&&) = delete;
    ~NoSync() {
      if (count_ != nullptr) --*count_;
    }

   private:
    friend DistributedDataParallel;
    explicit NoSync(std::shared_ptr<int> count) : count_(std::move(count)) { ++*count_; }
    std::shared_ptr<int> count_;
  };
  [[nodiscard]] NoSync no_sync();

  /// Ranks may have different numbers of batches until finish() of the result: see Join. Afterwards
  /// all ranks have the parameters and buffers of a rank that had the most.
  ///
  ///   Join join = ddp.join({.update = [&] { optimizer.step(); net->zero_grad(); }});
  ///   for (auto& batch : loader) {
  ///     loss(ddp(net, batch.data), batch.target).backward();
  ///     join.update();
  ///   }
  ///   join.finish();
  ///
  /// The optimizer's state is that of every update on all ranks if the step is made in update.
  /// Otherwise it lacks the steps that were made after the end of the rank's own data.
  [[nodiscard]] Join join(DdpJoinOptions options);
  [[nodiscard]] Join join(bool divide_by_active = false);

  /// What an optimizer of hocket works on: see sharded_optimizer.hpp and zero.hpp.
  [[nodiscard]] ShardedParameters& parameters();

  /// The reducer: buckets and communicator.
  [[nodiscard]] GradientReducer& reducer();

 private:
  struct Body;
  bool begin_forward();
  void end_forward(const std::vector<at::Tensor>& outputs);
  std::shared_ptr<Body> body_;  // autograd's hooks share it
};

}  // namespace hocket::training
