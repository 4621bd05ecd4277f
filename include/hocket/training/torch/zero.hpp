// ZeRO-1 and ZeRO-2 for libtorch modules: the optimizer's state, and with ZeRO-2 the gradients, are
// sharded over the ranks.
//
//   hocket::training::DistributedDataParallel ddp(*net, comm, {.sharding = Sharding::zero1});
//   hocket::training::ShardedAdamW optimizer(ddp.parameters(), {.learning_rate = 3e-4});
//   for (auto& batch : loader) {
//     auto output = ddp.run([&] { return net->forward(batch.data); });
//     loss(output, batch.target).backward();
//     optimizer.step();
//   }
//
// ShardedAdamW (sharded_optimizer.hpp) is hocket's own. Optimizers of libtorch, and of programs:
//
//   hocket::training::ShardedOptimizer<torch::optim::SGD> optimizer(
//       ddp, torch::optim::SGDOptions(0.1).momentum(0.9));
//
// With sharding, the trainable parameters lie in memory of hocket; they keep their sizes, strides,
// views and identity. The averaged gradients belong to the ranks' shards: after backward every
// .grad is undefined, step() uses the shards and discards them, and zero_grad() has nothing to do.
// A loop that leaves a step() out calls ddp.reducer().discard() instead, or the next averages are
// added.
// Use clip_grad_norm() of clip.hpp over ddp.reducer(). An optimizer of libtorch over
// net->parameters() would find no gradients: the next forward throws InvalidUsage unless an
// optimizer of hocket exists.
//
// Accumulation: under no_sync() gradients add up in .grad, whole; the backward without it reduces
// them. A backward without no_sync() that no step() has followed adds its averages to the shards:
// in ZeRO-2 that needs no memory for whole gradients, in ZeRO-1 memory for a second shard.
//
// In ZeRO-2 a gradient leaves .grad as soon as its bucket has a place. Those that backward computes
// before older buckets are complete stay in .grad until then, so memory is as memory_of() says if
// backward goes through the parameters in the reverse of their order. Gradients pass through two
// places of the largest bucket's size: where 50 MiB matter, set DdpOptions::limits to smaller
// buckets.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <hocket/training/sharded_optimizer.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::optim {
class Adagrad;
class Adam;
class AdamW;
class LBFGS;
class RMSprop;
class SGD;
}  // namespace torch::optim

namespace hocket::training {

/// Called with the name of a state of the optimizer, such as "exp_avg", and its tensor.
using StateVisitor = std::function<void(const std::string& name, const at::Tensor& tensor)>;

/// How an optimizer may be sharded. Specialize it for an optimizer of the program:
///
///   template <> struct hocket::training::OptimizerTraits<MyOptimizer> {
///     static constexpr bool elementwise = true;
///     // Optional, for checkpoints: makes the state of the parameter if there is none, and visits
///     // its tensors, each with as many elements as the parameter.
///     static void visit_state(MyOptimizer&, const at::Tensor& parameter, const StateVisitor&);
///     static void set_steps(MyOptimizer&, const at::Tensor& parameter, std::int64_t steps);
///   };
template <typename Optimizer>
struct OptimizerTraits {
  /// It treats every element of a parameter alone. Otherwise it receives whole parameters, each on
  /// one rank, which needs DdpOptions::cut = ShardCut::parameters. It must not combine parameters
  /// with one another.
  static constexpr bool elementwise = false;
};

namespace detail {
void visit_libtorch_state(::torch::optim::Adagrad& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit);
void visit_libtorch_state(::torch::optim::Adam& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit);
void visit_libtorch_state(::torch::optim::AdamW& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit);
void visit_libtorch_state(::torch::optim::RMSprop& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit);
void visit_libtorch_state(::torch::optim::SGD& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit);
void set_libtorch_steps(::torch::optim::Adagrad& optimizer, const at::Tensor& parameter,
                        std::int64_t steps);
void set_libtorch_steps(::torch::optim::Adam& optimizer, const at::Tensor& parameter,
                        std::int64_t steps);
void set_libtorch_steps(::torch::optim::AdamW& optimizer, const at::Tensor& parameter,
                        std::int64_t steps);
void set_libtorch_steps(::torch::optim::RMSprop& optimizer, const at::Tensor& parameter,
                        std::int64_t steps);
void set_libtorch_steps(::torch::optim::SGD& optimizer, const at::Tensor& parameter,
                        std::int64_t steps);

template <typename Optimizer>
struct LibtorchTraits {
  static constexpr bool elementwise = true;
  static void visit_state(Optimizer& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit) {
    visit_libtorch_state(optimizer, parameter, visit);
  }
  static void set_steps(Optimizer& optimizer, const at::Tensor& parameter, std::int64_t steps) {
    set_libtorch_steps(optimizer, parameter, steps);
  }
};
template <typename Optimizer>
concept has_state_traits = requires(Optimizer& optimizer, const at::Tensor& tensor,
                                    const StateVisitor& visit) {
  OptimizerTraits<Optimizer>::visit_state(optimizer, tensor, visit);
  OptimizerTraits<Optimizer>::set_steps(optimizer, tensor, std::int64_t{});
};

/// The tensors that a libtorch optimizer sees: over this rank's pieces.
class ShardedTensors {
 public:
  ShardedTensors(DistributedDataParallel& ddp, bool elementwise);
  ~ShardedTensors();

  [[nodiscard]] const std::vector<at::Tensor>& tensors() const;
  [[nodiscard]] const Parameter& parameter_of(std::size_t tensor) const;
  /// Collective. Calls step with the averages in .grad of the tensors.
  bool step(const StepOptions& options, const std::function<void()>& step);
  /// The state of a tensor as a range.
  [[nodiscard]] TensorRange range(std::size_t tensor, const std::string& name,
                                  const at::Tensor& state) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};
}  // namespace detail

template <>
struct OptimizerTraits<::torch::optim::Adagrad> : detail::LibtorchTraits<::torch::optim::Adagrad> {
};
template <>
struct OptimizerTraits<::torch::optim::Adam> : detail::LibtorchTraits<::torch::optim::Adam> {};
template <>
struct OptimizerTraits<::torch::optim::AdamW> : detail::LibtorchTraits<::torch::optim::AdamW> {};
template <>
struct OptimizerTraits<::torch::optim::RMSprop> : detail::LibtorchTraits<::torch::optim::RMSprop> {
};
template <>
struct OptimizerTraits<::torch::optim::SGD> : detail::LibtorchTraits<::torch::optim::SGD> {};

/// Parameters with options of their own.
template <typename Options>
struct OptimizerGroup {
  std::function<bool(const Parameter&)> contains;
  Options options;
};

/// An optimizer of libtorch, or one like it, that runs on every rank over this rank's shard alone.
/// Without sharding it runs over everything on every rank. It keeps no float32 copies: parameters
/// in 16 bits are updated in 16 bits.
template <typename Optimizer>
class ShardedOptimizer {
  static_assert(!std::is_same_v<Optimizer, ::torch::optim::LBFGS>,
                "hocket: LBFGS works on all parameters together and evaluates the loss several "
                "times a step, so it cannot be sharded. Use it without sharding, over "
                "module->parameters()");
  using Traits = OptimizerTraits<Optimizer>;

 public:
  /// A parameter has the options of the first group that contains it, otherwise the general ones.
  /// Throws InvalidUsage on all ranks if the optimizer needs whole parameters and
  /// DdpOptions::cut is another. The ddp outlives this object.
  template <typename Options>
  explicit ShardedOptimizer(DistributedDataParallel& ddp, const Options& options,
                            const std::vector<OptimizerGroup<Options>>& groups = {})
      : tensors_(ddp, Traits::elementwise), optimizer_(split(options, groups), options) {}

  /// Collective: see ShardedAdamW::step(). gradient_scale takes a pass over the held gradients.
  bool step(const StepOptions& options = {}) {
    const bool done = tensors_.step(options, [this] { optimizer_.step(); });
    steps_ += done ? 1 : 0;
    return done;
  }

  /// For its options and for schedulers. Groups are in the order given, the general one last. Its
  /// tensors are this rank's pieces of parameters.
  [[nodiscard]] Optimizer& optimizer() { return optimizer_; }

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) requires detail::has_state_traits<Optimizer> {
    steps_ = steps;
    for (const at::Tensor& tensor : tensors_.tensors()) {
      Traits::set_steps(optimizer_, tensor, steps);
    }
  }
  /// This rank's state, to be written to a checkpoint or read from one: NAME/PARAMETER, with
  /// libtorch's names, such as "momentum_buffer/layer.weight".
  [[nodiscard]] std::vector<TensorRange> state() requires detail::has_state_traits<Optimizer> {
    std::vector<TensorRange> ranges;
    for (std::size_t i = 0; i < tensors_.tensors().size(); ++i) {
      Traits::visit_state(optimizer_, tensors_.tensors()[i],
                          [&](const std::string& name, const at::Tensor& state) {
                            ranges.push_back(tensors_.range(i, name, state));
                          });
    }
    return ranges;
  }

 private:
  template <typename Options>
  std::vector<::torch::optim::OptimizerParamGroup> split(
      const Options& options, const std::vector<OptimizerGroup<Options>>& groups) const {
    std::vector<std::vector<at::Tensor>> of(groups.size() + 1);
    for (std::size_t i = 0; i < tensors_.tensors().size(); ++i) {
      std::size_t group = 0;
      while (group < groups.size() && !groups[group].contains(tensors_.parameter_of(i))) ++group;
      of[group].push_back(tensors_.tensors()[i]);
    }
    std::vector<::torch::optim::OptimizerParamGroup> split;
    for (std::size_t group = 0; group < of.size(); ++group) {
      split.emplace_back(of[group], std::make_unique<Options>(
                                        group < groups.size() ? groups[group].options : options));
    }
    return split;
  }

  detail::ShardedTensors tensors_;
  Optimizer optimizer_;
  std::int64_t steps_ = 0;
};

}  // namespace hocket::training
