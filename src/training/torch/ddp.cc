#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/nn/module.h>

#include <cstring>
#include <hocket/training/agreement.hpp>
#include <hocket/training/torch/compat.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <sstream>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "training/torch/memory.h"
#include "training/torch/rebind.h"

namespace hocket::training {
namespace {

using ::torch::autograd::Node;
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
  std::unordered_set<const void*> seen;
  for (const auto& named : module.named_parameters()) {
    const at::Tensor& parameter = named.value();
    if (!parameter.defined() || !parameter.requires_grad()) continue;
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
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

std::string line_of(const std::string& name, const at::Tensor& tensor) {
  std::ostringstream line;
  line << '\'' << name << "' ("
       << (tensor.defined() ? c10::toString(tensor.scalar_type()) : "undefined");
  if (tensor.defined()) line << ", " << tensor.sizes();
  return line.str() + ")";
}

/// What is broadcast may have any type, but it must be in memory that hocket can send.
void require_in_memory(const char* kind, const std::string& name, const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(operation, std::string(kind) + " '" + name + "' " + what);
  };
  if (tensor.layout() != at::kStrided) refuse("is sparse; only dense tensors can be broadcast");
  if (tensor.device().is_cpu()) return;
  refuse("is on device " + tensor.device().str() + "; only tensors in CPU memory can be broadcast");
}

/// What is broadcast beside the trained parameters, each tensor once.
struct Rest {
  std::vector<at::Tensor> frozen, buffers;
  std::vector<std::string> lines;
};

Rest rest_of(const ::torch::nn::Module& module, const std::vector<Trained>& trained) {
  std::unordered_set<const void*> seen;
  for (const Trained& each : trained) seen.insert(each.parameter.unsafeGetTensorImpl());
  Rest rest;
  const auto add = [&](const char* kind, const auto& all, std::vector<at::Tensor>& to) {
    for (const auto& named : all) {
      const at::Tensor& tensor = named.value();
      if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      require_in_memory(kind, named.key(), tensor);
      to.push_back(tensor);
      rest.lines.push_back(line_of(named.key(), tensor));
    }
  };
  add("frozen parameter", module.named_parameters(), rest.frozen);
  add("buffer", module.named_buffers(), rest.buffers);
  return rest;
}

/// On all ranks, or on none.
std::vector<Trained> agreed_parameters(const ::torch::nn::Module& module, Communicator& comm) {
  std::vector<Trained> all;
  run_on_all(comm, operation, [&] {
    all = trained_parameters(module);
    for (const Trained& each : all) describe_tensor(operation, each.name, each.parameter);
    rest_of(module, all);
  });
  return all;
}

}  // namespace

struct DistributedDataParallel::Body final : GradientOwner, std::enable_shared_from_this<Body> {
  Body(::torch::nn::Module& net, Communicator& comm, const DdpOptions& given)
      : module(net),
        options(given),
        trained(agreed_parameters(net, comm)),
        reducer(comm, described(trained),
                {.limits = given.limits,
                 .sharding = given.sharding,
                 .cut = given.cut,
                 .reduction = given.reduction,
                 .find_unused_parameters = given.find_unused_parameters,
                 .static_graph = given.static_graph,
                 .uneven_accumulation = given.uneven_accumulation,
                 .on_non_finite = given.on_non_finite,
                 .owner = this}) {
    for (int p = 0; p < count(); ++p) moved(p, reducer.gradient(p));
    if (reducer.sharded()) move_parameters();
    require_same_lines(reducer.communicator(), "buffer or frozen parameter",
                       rest_of(module, trained).lines);
    broadcast_model(0);
  }

  int count() const { return static_cast<int>(trained.size()); }
  Trained& at(int parameter) { return trained[static_cast<std::size_t>(parameter)]; }

  bool needs_gradient(int parameter) override;
  void moved(int parameter, void* address) override;
  void deliver(int parameter, void* address) override;

  void move_parameters();
  void make_parameters();
  void require_places() const;
  void drop_gradients();
  void broadcast_model(int root);
  void broadcast_buffers(int root);
  void take_averages();
  void forget_averages();
  void begin_forward();
  std::vector<int> unreached(const std::vector<at::Tensor>& outputs) const;

  /// What a forward has found out for its backward.
  struct Forward {
    bool synchronize = true;
    std::vector<int> unreached;  // parameters
  };
  void on_output_gradient(const Forward& forward);
  void on_gradient(int parameter);
  void take_over(int parameter);
  void end();
  void abandon() noexcept {
    in_backward = false;
    drop_gradients();  // void, and perhaps of a kind that cannot be reduced
    reducer.abandon();
  }

  ::torch::nn::Module& module;
  const DdpOptions options;
  std::vector<Trained> trained;
  GradientReducer reducer;
  std::shared_ptr<int> no_sync = std::make_shared<int>(0);
  bool in_backward = false;
  int forwards = 0;  // since the last backward
  std::unique_ptr<ShardedParameters> parameters;
  bool has_optimizer = false;  // the program has asked for the parameters
  bool has_averages = false;   // a backward was synchronized
};

namespace {

/// Ends a step when autograd has ended a backward. If backward throws, autograd destroys its
/// callbacks without a call: then the other ranks are told.
template <typename Body>
class EndOfBackward {
 public:
  explicit EndOfBackward(std::shared_ptr<Body> body) : body_(std::move(body)) {}
  EndOfBackward(const EndOfBackward&) = delete;
  EndOfBackward& operator=(const EndOfBackward&) = delete;
  ~EndOfBackward() {
    if (body_ != nullptr) body_->abandon();
  }
  void run() { std::exchange(body_, nullptr)->end(); }

 private:
  std::shared_ptr<Body> body_;
};

}  // namespace

/// A gradient elsewhere, which the program has set itself, is taken over too.
bool DistributedDataParallel::Body::needs_gradient(int parameter) {
  if (!at(parameter).parameter.grad().defined()) return false;
  if (options.sharding != Sharding::zero2) take_over(parameter);
  return true;
}

void DistributedDataParallel::Body::moved(int parameter, void* address) {
  Trained& mine = at(parameter);
  at::Tensor& gradient = mine.parameter.mutable_grad();
  const bool bound =
      gradient.defined() && mine.place.defined() && gradient.data_ptr() == mine.place.data_ptr();
  mine.place = address != nullptr ? tensor_over(address, mine.parameter) : at::Tensor();
  if (bound) gradient = mine.place;
}

void DistributedDataParallel::Body::deliver(int parameter, void* address) {
  at(parameter).place = tensor_over(address, at(parameter).parameter);
  take_over(parameter);
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
  if (gradient.scalar_type() != mine.parameter.scalar_type() ||
      gradient.sizes() != mine.parameter.sizes() || gradient.device() != mine.parameter.device()) {
    refuse("has another type, shape or device than the parameter");
  }
  if (!mine.place.defined()) {
    void* const address = reducer.gradient(parameter);
    if (address == nullptr) return;  // zero2: .grad stays where it is until deliver()
    mine.place = tensor_over(address, mine.parameter);
  }
  if (gradient.data_ptr() != mine.place.data_ptr()) {
    const c10::AutoGradMode no_grad(false);
    mine.place.copy_(gradient);
  }
  gradient = mine.place;
}

/// Sharded: the averages are the reducer's, and a .grad would have other values.
void DistributedDataParallel::Body::drop_gradients() {
  if (!reducer.sharded() || !reducer.synchronizes()) return;
  for (Trained& each : trained) each.parameter.mutable_grad() = at::Tensor();
}

void DistributedDataParallel::Body::move_parameters() {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const Trained& each : trained) {
    names.push_back(each.name);
    tensors.push_back(each.parameter);
  }
  run_on_all(reducer.communicator(), operation,
             [&] { require_movable(operation, names, tensors); });
  parameters = std::make_unique<ShardedParameters>(reducer);
  for (int p = 0; p < count(); ++p) {
    move_parameter(at(p).parameter, parameters->place(p), parameters->memory());
  }
}

/// What optimizers of hocket see. They write to parameters; autograd is told.
void DistributedDataParallel::Body::make_parameters() {
  has_optimizer = true;
  if (parameters == nullptr) {
    std::vector<void*> places;
    for (const Trained& each : trained) {
      if (!each.parameter.is_non_overlapping_and_dense()) {
        throw InvalidArgument(operation, "parameter '" + each.name +
                                             "' has gaps in its memory: optimizers of hocket need "
                                             "dense parameters. Replace it by its clone");
      }
      places.push_back(each.parameter.data_ptr());
    }
    parameters = std::make_unique<ShardedParameters>(reducer, std::move(places));
  }
  parameters->on_update([this] {
    for (const Trained& each : trained) each.parameter.unsafeGetTensorImpl()->bump_version();
  });
}

void DistributedDataParallel::Body::require_places() const {
  if (reducer.sharded() && has_averages && !has_optimizer) {
    throw InvalidUsage(operation,
                       "gradients are sharded, so each parameter's .grad is undefined after "
                       "backward, and optimizers of libtorch do nothing. Use "
                       "hocket::training::ShardedAdamW or ShardedOptimizer over parameters(), or "
                       "Sharding::none");
  }
  if (parameters == nullptr) return;
  for (int p = 0; p < count(); ++p) {
    const Trained& mine = trained[static_cast<std::size_t>(p)];
    if (mine.parameter.numel() == 0 || mine.parameter.data_ptr() == parameters->place(p)) continue;
    throw InvalidUsage(operation,
                       "parameter '" + mine.name +
                           "' has other memory than the optimizer knows, because its data was "
                           "replaced (by Module::to or set_data). Make DistributedDataParallel "
                           "after such changes");
  }
}

void DistributedDataParallel::Body::broadcast_model(int root) {
  Rest rest = rest_of(module, trained);
  for (const Trained& each : trained) rest.frozen.push_back(each.parameter);
  broadcast_tensors(reducer.communicator(), rest.frozen, root);
  broadcast_tensors(reducer.communicator(), rest.buffers, root);
}

void DistributedDataParallel::Body::broadcast_buffers(int root) {
  broadcast_tensors(reducer.communicator(), rest_of(module, trained).buffers, root);
}

/// Unsharded: .grad of every parameter that any rank used is the tensor over its place.
void DistributedDataParallel::Body::take_averages() {
  if (reducer.sharded()) return;
  for (int p = 0; p < count(); ++p) {
    if (reducer.was_used(p)) at(p).parameter.mutable_grad() = at(p).place;
  }
}

/// A backward of this rank would add to them.
void DistributedDataParallel::Body::forget_averages() {
  for (Trained& each : trained) {
    at::Tensor& gradient = each.parameter.mutable_grad();
    if (gradient.defined() && gradient.is_same(each.place)) gradient = at::Tensor();
  }
}

void DistributedDataParallel::Body::begin_forward() {
  ++forwards;
  require_places();
  if (!options.broadcast_buffers || *no_sync > 0 || module.buffers().empty()) return;
  if (reducer.uneven()) reducer.announce(GradientReducer::Turn::other);
  try {
    broadcast_buffers(reducer.uneven() ? reducer.last_active() : 0);
  } catch (const Aborted&) {
    std::rethrow_exception(reducer.cause_of(std::current_exception()));
  }
}

/// The parameters that the outputs do not depend on; empty where a custom function hides it.
std::vector<int> DistributedDataParallel::Body::unreached(
    const std::vector<at::Tensor>& outputs) const {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> ahead;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) ahead.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    visit(::torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!ahead.empty()) {
    const Node* const node = ahead.back();
    ahead.pop_back();
    if (std::strstr(typeid(*node).name(), "CppNode") != nullptr) return {};
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  std::vector<int> all;
  for (int p = 0; p < count(); ++p) {
    if (!seen.contains(trained[static_cast<std::size_t>(p)].accumulator.get())) all.push_back(p);
  }
  return all;
}

/// The first output whose gradient is known belongs to the outermost backward. (A hook of a
/// parameter may run in a backward inside of it: of a checkpointed part.)
void DistributedDataParallel::Body::on_output_gradient(const Forward& forward) {
  if (in_backward) return;
  reducer.begin(forward.synchronize);
  in_backward = true;
  auto last = std::make_shared<EndOfBackward<Body>>(shared_from_this());
  ::torch::autograd::Engine::get_default_engine().queue_callback([last] { last->run(); });
  // Several forwards before one backward: what one does not use another may.
  const bool only_this = std::exchange(forwards, 0) == 1;
  if (!only_this || !forward.synchronize) return;
  for (const int p : forward.unreached) reducer.absent(p);
}

void DistributedDataParallel::Body::on_gradient(int parameter) {
  if (!at(parameter).parameter.grad().defined()) return;  // backward made none
  TORCH_CHECK(in_backward, "hocket: parameter '", at(parameter).name,
              "' received a gradient from a forward that did not run in "
              "DistributedDataParallel::run: the other ranks would not receive it");
  take_over(parameter);
  reducer.ready(parameter);
}

void DistributedDataParallel::Body::end() {
  in_backward = false;
  try {
    reducer.end();
  } catch (...) {
    drop_gradients();
    throw;
  }
  if (!reducer.synchronizes()) return;
  has_averages = true;
  if (reducer.sharded()) return drop_gradients();
  // A gradient may be one that only other ranks have.
  if (options.find_unused_parameters || options.static_graph) take_averages();
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
ShardedParameters& DistributedDataParallel::parameters() {
  body_->make_parameters();
  return *body_->parameters;
}
DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
  return NoSync(body_->no_sync);
}
Join DistributedDataParallel::join(DdpJoinOptions options) {
  Body* const body = body_.get();
  JoinOptions all{.divide_by_active = options.divide_by_active,
                  .update = std::move(options.update)};
  const bool updates = all.update != nullptr;
  all.reduced = [body, updates] { updates ? body->take_averages() : body->forget_averages(); };
  all.other = [body](int root) { body->broadcast_buffers(root); };
  all.finished = [body](int root) {
    // Sharded: every update has gathered the parameters.
    body->reducer.sharded() ? body->broadcast_buffers(root) : body->broadcast_model(root);
  };
  return Join(body->reducer, std::move(all));
}
Join DistributedDataParallel::join(bool divide_by_active) {
  return join(DdpJoinOptions{.divide_by_active = divide_by_active, .update = {}});
}

bool DistributedDataParallel::begin_forward() {
  if (!c10::GradMode::is_enabled()) return false;
  body_->begin_forward();
  return true;
}

void DistributedDataParallel::end_forward(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> differentiable;
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) differentiable.push_back(output);
  }
  const auto forward = std::make_shared<Body::Forward>();
  forward->synchronize = *body_->no_sync == 0;
  if (body_->options.find_unused_parameters) forward->unreached = body_->unreached(differentiable);
  for (const at::Tensor& output : differentiable) {
    // The hook may outlive this object, with its tensor.
    output.register_hook([body = std::weak_ptr<Body>(body_), forward](const at::Tensor&) {
      if (const auto alive = body.lock()) alive->on_output_gradient(*forward);
    });
  }
}

}  // namespace hocket::training
