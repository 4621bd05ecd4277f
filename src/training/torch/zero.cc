#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <hocket/training/torch/zero.hpp>

#include "training/range_math.h"
#include "training/torch/memory.h"
#include "training/torch/types.h"

namespace hocket::training::detail {
namespace {

using ::torch::optim::Adagrad;
using ::torch::optim::Adam;
using ::torch::optim::AdamW;
using ::torch::optim::RMSprop;
using ::torch::optim::SGD;

/// The options of the parameter's group.
template <typename Options>
const Options& options_of(::torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& each : group.params()) {
      if (each.is_same(parameter)) return static_cast<const Options&>(group.options());
    }
  }
  return static_cast<const Options&>(optimizer.defaults());
}

/// The parameter's state, as libtorch makes it in the first step.
template <typename State>
State& state_of(::torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

const at::Tensor& zeros_if_undefined(at::Tensor& tensor, const at::Tensor& like) {
  if (!tensor.defined()) tensor = at::zeros_like(like);
  return tensor;
}

template <typename State, typename Options>
void visit_adam(::torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                const StateVisitor& visit) {
  auto& state = state_of<State>(optimizer, parameter);
  visit("exp_avg", zeros_if_undefined(state.exp_avg(), parameter));
  visit("exp_avg_sq", zeros_if_undefined(state.exp_avg_sq(), parameter));
  if (options_of<Options>(optimizer, parameter).amsgrad()) {
    visit("max_exp_avg_sq", zeros_if_undefined(state.max_exp_avg_sq(), parameter));
  }
}

}  // namespace

void visit_libtorch_state(Adam& optimizer, const at::Tensor& parameter, const StateVisitor& visit) {
  visit_adam<::torch::optim::AdamParamState, ::torch::optim::AdamOptions>(optimizer, parameter,
                                                                          visit);
}
void visit_libtorch_state(AdamW& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit) {
  visit_adam<::torch::optim::AdamWParamState, ::torch::optim::AdamWOptions>(optimizer, parameter,
                                                                            visit);
}
void visit_libtorch_state(SGD& optimizer, const at::Tensor& parameter, const StateVisitor& visit) {
  if (options_of<::torch::optim::SGDOptions>(optimizer, parameter).momentum() == 0) return;
  auto& state = state_of<::torch::optim::SGDParamState>(optimizer, parameter);
  visit("momentum_buffer", zeros_if_undefined(state.momentum_buffer(), parameter));
}
void visit_libtorch_state(RMSprop& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit) {
  const auto& options = options_of<::torch::optim::RMSpropOptions>(optimizer, parameter);
  auto& state = state_of<::torch::optim::RMSpropParamState>(optimizer, parameter);
  visit("square_avg", zeros_if_undefined(state.square_avg(), parameter));
  if (options.momentum() > 0) {
    visit("momentum_buffer", zeros_if_undefined(state.momentum_buffer(), parameter));
  }
  if (options.centered()) visit("grad_avg", zeros_if_undefined(state.grad_avg(), parameter));
}
void visit_libtorch_state(Adagrad& optimizer, const at::Tensor& parameter,
                          const StateVisitor& visit) {
  auto& state = state_of<::torch::optim::AdagradParamState>(optimizer, parameter);
  visit("sum", zeros_if_undefined(state.sum(), parameter));
}

void set_libtorch_steps(Adam& optimizer, const at::Tensor& parameter, std::int64_t steps) {
  state_of<::torch::optim::AdamParamState>(optimizer, parameter).step(steps);
}
void set_libtorch_steps(AdamW& optimizer, const at::Tensor& parameter, std::int64_t steps) {
  state_of<::torch::optim::AdamWParamState>(optimizer, parameter).step(steps);
}
void set_libtorch_steps(RMSprop& optimizer, const at::Tensor& parameter, std::int64_t steps) {
  state_of<::torch::optim::RMSpropParamState>(optimizer, parameter).step(steps);
}
void set_libtorch_steps(Adagrad& optimizer, const at::Tensor& parameter, std::int64_t steps) {
  state_of<::torch::optim::AdagradParamState>(optimizer, parameter).step(steps);
}
void set_libtorch_steps(SGD&, const at::Tensor&, std::int64_t) {}

struct ShardedTensors::Body {
  Body(DistributedDataParallel& ddp, bool by_elements)
      : parameters(ddp.parameters()), elementwise(by_elements) {
    if (!elementwise && parameters.reducer().sharded() && !parameters.has_whole_parameters()) {
      throw InvalidUsage("hocket::training::ShardedOptimizer",
                         "the optimizer needs whole parameters, but buckets are cut at any "
                         "element: set DdpOptions::cut to ShardCut::parameters. If the optimizer "
                         "treats every element alone, specialize OptimizerTraits for it");
    }
    for (const ShardedParameters::Piece& piece : parameters.pieces()) {
      tensors.push_back(tensor(piece, piece.values));
    }
  }

  const Parameter& parameter_of(const ShardedParameters::Piece& piece) const {
    return parameters.reducer().parameters()[static_cast<std::size_t>(piece.parameter)];
  }
  at::Tensor tensor(const ShardedParameters::Piece& piece, void* data) const {
    const Parameter& its = parameter_of(piece);
    const auto options = at::TensorOptions().dtype(scalar_type(its.dtype));
    const auto keep = [owner = parameters.memory()](void*) {};
    if (elementwise) {
      return at::from_blob(data, {static_cast<std::int64_t>(piece.elements)}, keep, options);
    }
    if (its.strides.empty()) return at::from_blob(data, its.sizes, keep, options);
    return at::from_blob(data, its.sizes, its.strides, keep, options);
  }

  bool step(const StepOptions& options, const std::function<void()>& optimizer_step);

  ShardedParameters& parameters;
  const bool elementwise;
  std::vector<at::Tensor> tensors;  // of pieces()
};

bool ShardedTensors::Body::step(const StepOptions& options,
                                const std::function<void()>& optimizer_step) {
  GradientReducer& reducer = parameters.reducer();
  if (options.skip_nonfinite && !parameters.gradients_are_finite()) {
    reducer.discard();
    return false;
  }
  const std::vector<ShardedParameters::Piece> pieces = parameters.pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const ShardedParameters::Piece& piece = pieces[i];
    at::Tensor& gradient = tensors[i].mutable_grad();
    gradient = at::Tensor();
    if (!reducer.was_used(piece.parameter)) continue;  // optimizers leave it as it is
    if (options.gradient_scale != 1) {
      scale(piece.gradient, piece.elements, parameter_of(piece).dtype, options.gradient_scale);
    }
    gradient = tensor(piece, piece.gradient);
  }
  bool stepped = false;
  parameters.update(pieces, [&](const ShardedParameters::Piece&) {
    // The optimizer updates all pieces at once.
    if (!stepped) optimizer_step();
    stepped = true;
  });
  reducer.discard();
  return true;
}

ShardedTensors::ShardedTensors(DistributedDataParallel& ddp, bool elementwise)
    : body_(std::make_unique<Body>(ddp, elementwise)) {}
ShardedTensors::~ShardedTensors() = default;

const std::vector<at::Tensor>& ShardedTensors::tensors() const { return body_->tensors; }
const Parameter& ShardedTensors::parameter_of(std::size_t tensor) const {
  return body_->parameter_of(body_->parameters.pieces()[tensor]);
}
bool ShardedTensors::step(const StepOptions& options, const std::function<void()>& step) {
  return body_->step(options, step);
}

TensorRange ShardedTensors::range(std::size_t tensor, const std::string& name,
                                  const at::Tensor& state) const {
  const ShardedParameters::Piece piece = body_->parameters.pieces()[tensor];
  Parameter described = body_->parameter_of(piece);
  if (static_cast<std::size_t>(state.numel()) != piece.elements) {
    throw InvalidUsage("hocket::training::ShardedOptimizer",
                       "the state '" + name + "' of parameter '" + described.name + "' has " +
                           std::to_string(state.numel()) + " elements, not " +
                           std::to_string(piece.elements) +
                           ": only states of the parameter's size can be saved");
  }
  described.name = name + "/" + described.name;
  described.dtype = describe_tensor("hocket::training::ShardedOptimizer", name, state).dtype;
  return {std::move(described), piece.begin, piece.elements, state.data_ptr()};
}

}  // namespace hocket::training::detail
