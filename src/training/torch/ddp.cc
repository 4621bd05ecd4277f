#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/nn/module.h>

#include <hocket/training/torch/compat.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "training/torch/memory.h"

namespace hocket::training {
namespace {

using ::torch::autograd::variable_list;

constexpr const char* operation = "hocket::training::DistributedDataParallel";

/// A trainable parameter, and its gradient's tensor over the reducer's memory.
struct Trained {
  std::string name;
  at::Tensor parameter;
  at::Tensor place;                 // what .grad is while it lies in the bucket
  compat::NodePointer accumulator;  // the parameter itself holds it only weakly
  std::uintptr_t hook = 0;
};

/// The trainable parameters, each once, in the order of the module.
std::vector<Trained> trained_parameters(const ::torch::nn::Module& module) {
  std::vector<Trained> all;
  std::unordered_map<const void*, std::size_t> seen;
  for (const auto& named : module.named_parameters()) {
    const at::Tensor& parameter = named.value();
    if (!parameter.defined() || !parameter.requires_grad()) continue;
    if (!seen.emplace(parameter.unsafeGetTensorImpl(), all.size()).second) continue;
    all.push_back({named.key(), parameter, {}, {}, 0});
  }
  if (all.empty()) {
    throw InvalidArgument(operation, "the module has no parameter that requires a gradient");
  }
  return all;
}

std::vector<Parameter> described(const std::vector<Trained>& trained) {
  std::vector<Parameter> all;
  for (const Trained& each : trained) {
    all.push_back(describe_tensor(operation, each.name, each.parameter));
  }
  return all;
}

}  // namespace

struct DistributedDataParallel::Body final : GradientOwner {
  Body(::torch::nn::Module& net, Communicator& comm, const DdpOptions& given)
      : module(net),
        options(given),
        trained(trained_parameters(net)),
        reducer(comm, described(trained),
                {.limits = given.limits,
                 .find_unused_parameters = given.find_unused_parameters,
                 .owner = this}) {
    for (int p = 0; p < count(); ++p) moved(p, reducer.gradient(p));
    std::vector<at::Tensor> state;
    for (const at::Tensor& parameter : module.parameters()) state.push_back(parameter);
    for (const at::Tensor& buffer : module.buffers()) state.push_back(buffer);
    broadcast_tensors(operation, reducer.communicator(), state, 0);
  }

  int count() const { return static_cast<int>(trained.size()); }
  Trained& at(int parameter) { return trained[static_cast<std::size_t>(parameter)]; }

  bool needs_gradient(int parameter) override;
  void moved(int parameter, void* address) override;

  void begin();
  void on_gradient(int parameter);
  void take_over(int parameter);
  void on_output_gradient();
  void end();

  ::torch::nn::Module& module;
  const DdpOptions options;
  std::vector<Trained> trained;
  GradientReducer reducer;
  std::shared_ptr<int> no_sync = std::make_shared<int>(0);
  bool end_is_queued = false;  // in this backward
};

/// A gradient elsewhere, which the program has set itself, is taken over too.
bool DistributedDataParallel::Body::needs_gradient(int parameter) {
  if (!at(parameter).parameter.grad().defined()) return false;
  take_over(parameter);
  return true;
}

void DistributedDataParallel::Body::moved(int parameter, void* address) {
  Trained& mine = at(parameter);
  at::Tensor& gradient = mine.parameter.mutable_grad();
  const bool bound =
      gradient.defined() && mine.place.defined() && gradient.data_ptr() == mine.place.data_ptr();
  mine.place = tensor_over(address, mine.parameter);
  if (bound) gradient = mine.place;
}

/// Makes .grad the tensor over the parameter's place, with the same values.
void DistributedDataParallel::Body::take_over(int parameter) {
  Trained& mine = at(parameter);
  at::Tensor& gradient = mine.parameter.mutable_grad();
  if (gradient.is_same(mine.place)) return;
  const auto refuse = [&](const char* what) {
    TORCH_CHECK(false, "hocket: the gradient of parameter '", mine.name, "' ", what);
  };
  if (gradient.layout() != at::kStrided) refuse("is sparse: only dense gradients can be reduced");
  if (gradient.requires_grad()) {
    refuse(
        "is part of a graph: backward with create_graph is not possible with "
        "DistributedDataParallel");
  }
  if (gradient.scalar_type() != mine.place.scalar_type() ||
      gradient.sizes() != mine.place.sizes() || gradient.device() != mine.place.device()) {
    refuse("has another type, shape or device than the parameter");
  }
  if (gradient.data_ptr() != mine.place.data_ptr()) {
    const c10::AutoGradMode no_grad(false);
    mine.place.copy_(gradient);
  }
  gradient = mine.place;
}

void DistributedDataParallel::Body::begin() {
  end_is_queued = false;
  reducer.begin(*no_sync == 0);
  if (!options.broadcast_buffers || !reducer.synchronizes()) return;
  broadcast_tensors(operation, reducer.communicator(), module.buffers(), 0);
}

void DistributedDataParallel::Body::on_gradient(int parameter) {
  if (!at(parameter).parameter.grad().defined()) return;  // backward made none
  take_over(parameter);
  reducer.ready(parameter);
}

/// The first output whose gradient is known belongs to the outermost backward. (A hook of a
/// parameter may run in a backward inside of it: of a checkpointed part.)
void DistributedDataParallel::Body::on_output_gradient() {
  if (end_is_queued) return;
  end_is_queued = true;
  ::torch::autograd::Engine::get_default_engine().queue_callback([this] { end(); });
}

void DistributedDataParallel::Body::end() {
  reducer.end();
  if (!reducer.synchronizes() || !options.find_unused_parameters) return;
  // A gradient that only other ranks have.
  for (int p = 0; p < count(); ++p) {
    if (reducer.was_used(p)) at(p).parameter.mutable_grad() = at(p).place;
  }
}

DistributedDataParallel::DistributedDataParallel(::torch::nn::Module& module, Communicator& comm,
                                                 const DdpOptions& options)
    : body_(std::make_shared<Body>(module, comm, options)) {
  for (int p = 0; p < body_->count(); ++p) {
    Trained& mine = body_->at(p);
    mine.accumulator = ::torch::autograd::impl::grad_accumulator(mine.parameter);
    mine.hook =
        mine.accumulator->add_post_hook(std::make_unique<::torch::autograd::utils::LambdaPostHook>(
            [body = body_.get(), p](const variable_list& outputs, const variable_list&) {
              body->on_gradient(p);
              return outputs;
            }));
  }
}

DistributedDataParallel::~DistributedDataParallel() {
  if (body_ == nullptr) return;
  for (Trained& mine : body_->trained) {
    mine.accumulator->del_post_hook(mine.hook);
    // The memory under the gradient ends with the reducer.
    at::Tensor& gradient = mine.parameter.mutable_grad();
    if (gradient.defined() && gradient.is_same(mine.place)) gradient = gradient.clone();
  }
}
DistributedDataParallel::DistributedDataParallel(DistributedDataParallel&&) noexcept = default;

GradientReducer& DistributedDataParallel::reducer() { return body_->reducer; }
DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
  return NoSync(body_->no_sync);
}

bool DistributedDataParallel::begin() {
  if (!c10::GradMode::is_enabled()) return false;
  body_->begin();
  return true;
}

void DistributedDataParallel::end_step_at(const at::Tensor& output) {
  if (!output.defined() || !output.requires_grad()) return;
  // The hook may outlive this object, with its tensor.
  output.register_hook([body = std::weak_ptr<Body>(body_)](const at::Tensor&) {
    if (const auto alive = body.lock()) alive->on_output_gradient();
  });
}

}  // namespace hocket::training
