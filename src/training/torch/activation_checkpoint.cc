#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <hocket/hocket.hpp>
#include <hocket/training/torch/activation_checkpoint.hpp>
#include <hocket/training/torch/autocast.hpp>
#include <mutex>
#include <set>

namespace hocket::training::detail {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

/// The state of the default CPU generator.
at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}
void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

/// Restores the state of the default CPU generator.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(const at::Tensor& state) : active_(state.defined()) {
    if (!active_) return;
    before_ = random_state();
    set_random_state(state);
  }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;
  ~RandomStateGuard() {
    if (active_) set_random_state(before_);
  }

 private:
  const bool active_;
  at::Tensor before_;
};

/// Lists of tensors without their undefined ones, and back.
variable_list without_undefined(const std::vector<at::Tensor>& all) {
  variable_list some;
  for (const at::Tensor& tensor : all) {
    if (tensor.defined()) some.push_back(tensor);
  }
  return some;
}
std::vector<at::Tensor> with_undefined(const variable_list& some,
                                       const std::vector<char>& defined) {
  std::vector<at::Tensor> all(defined.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (defined[i]) all[i] = some[next++];
  }
  return all;
}
std::vector<char> which_are_defined(const std::vector<at::Tensor>& all) {
  std::vector<char> which;
  for (const at::Tensor& tensor : all) which.push_back(tensor.defined() ? 1 : 0);
  return which;
}

/// What the second call needs, beside the tensors that autograd keeps.
struct Run final : ::torch::CustomClassHolder {
  std::shared_ptr<Recomputable> call;
  CheckpointOptions options;
  std::vector<char> inputs_defined, outputs_defined;
  struct Kind {
    std::vector<std::int64_t> sizes;
    at::ScalarType dtype;
    bool operator==(const Kind&) const = default;
  };
  std::vector<Kind> outputs;  // that are defined
  at::Tensor random_state;
  AutocastState autocast;
  int backwards = 0;

  std::string title() const {
    return options.name.empty() ? "hocket: a checkpointed function"
                                : "hocket: the checkpointed function '" + options.name + "'";
  }
};

class CheckpointFunction : public ::torch::autograd::Function<CheckpointFunction> {
 public:
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Run>& run,
                               const at::Tensor& anchor, at::TensorList inputs);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};

variable_list CheckpointFunction::forward(AutogradContext* context,
                                          const c10::intrusive_ptr<Run>& run,
                                          const at::Tensor& /*anchor*/, at::TensorList inputs) {
  if (run->options.preserve_rng) run->random_state = random_state();
  run->autocast = AutocastState::current();
  context->set_materialize_grads(false);
  context->save_for_backward(inputs.vec());
  context->saved_data["run"] = at::IValue::make_capsule(run);

  std::vector<at::Tensor> all;
  {
    // Without gradients: see AutocastState::cache.
    AutocastState uncached = run->autocast;
    uncached.cache = false;
    const AutocastGuard autocast(uncached);
    all = run->call->run(with_undefined(inputs.vec(), run->inputs_defined));
  }
  run->outputs_defined = which_are_defined(all);
  variable_list outputs = without_undefined(all), constants;
  std::set<const void*> seen;
  for (at::Tensor& output : outputs) {
    // A tensor that exists already (an input, a parameter, another output) keeps its own history.
    const bool is_new = seen.insert(output.unsafeGetTensorImpl()).second;
    if (!is_new || output.requires_grad()) output = output.detach();
    run->outputs.push_back({output.sizes().vec(), output.scalar_type()});
    if (!at::isFloatingType(output.scalar_type()) && !at::isComplexType(output.scalar_type())) {
      constants.push_back(output);
    }
  }
  context->mark_non_differentiable(constants);
  return outputs;
}

/// Refuses a backward that the second call cannot serve.
void require_possible(const Run& run) {
  TORCH_CHECK(!c10::GradMode::is_enabled(), run.title(),
              " has no second derivative: call backward without create_graph, or call the function "
              "without checkpoint()");
  TORCH_CHECK(::torch::autograd::Engine::get_default_engine().is_checkpoint_valid(), run.title(),
              " adds to the .grad of its parameters: call backward() without `inputs`, not "
              "autograd::grad()");
}

variable_list saved_inputs(const AutogradContext& context, const Run& run) {
  try {
    return context.get_saved_variables();
  } catch (const c10::Error& error) {
    TORCH_CHECK(run.backwards == 0, run.title(),
                " has had its backward, which freed its inputs: call forward again before each "
                "backward, or backward with retain_graph");
    TORCH_CHECK(false, run.title(), ": ", error.what_without_backtrace());
  }
}

/// The outputs of the second call that take part in backward, with their gradients.
void select(const Run& run, const variable_list& outputs, const variable_list& gradients,
            variable_list& roots, variable_list& root_gradients) {
  TORCH_CHECK(outputs.size() == run.outputs.size(), run.title(), " returned ", run.outputs.size(),
              " tensors in forward, but ", outputs.size(),
              " when backward called it again: it must do the same both times");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Run::Kind kind{outputs[i].sizes().vec(), outputs[i].scalar_type()};
    TORCH_CHECK(kind == run.outputs[i], run.title(), " returned a tensor of ",
                at::IntArrayRef(run.outputs[i].sizes), " ", run.outputs[i].dtype,
                " in forward, but of ", outputs[i].sizes(), " ", outputs[i].scalar_type(),
                " when backward called it again: it must do the same both times");
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i]);
  }
}

variable_list CheckpointFunction::backward(AutogradContext* context, variable_list gradients) {
  const auto holder = context->saved_data.at("run").toCapsule();
  Run& run = static_cast<Run&>(*holder);
  require_possible(run);
  const variable_list saved = saved_inputs(*context, run);
  ++run.backwards;

  variable_list inputs;
  for (const at::Tensor& each : saved) {
    inputs.push_back(each.detach().set_requires_grad(each.requires_grad()));
  }
  variable_list roots, root_gradients;
  {
    const RandomStateGuard random(run.random_state);
    const AutocastGuard autocast(run.autocast);
    const c10::AutoGradMode with_gradients(true);
    select(run, without_undefined(run.call->run(with_undefined(inputs, run.inputs_defined))),
           gradients, roots, root_gradients);
  }
  gradients.clear();
  if (!roots.empty()) ::torch::autograd::backward(roots, root_gradients);

  variable_list result(2);  // of run and anchor
  for (const at::Tensor& each : inputs) result.push_back(each.grad());
  return result;
}

/// Counts bytes of tensors that this thread allocates and frees in CPU memory.
class LiveBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device device) override {
    if (device.is_cpu()) now += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now = 0;
};

/// Bytes of the storages of tensors, each storage once, without those that `others` have too.
std::int64_t bytes_of(const std::vector<at::Tensor>& tensors,
                      const std::vector<at::Tensor>& others = {}) {
  std::set<const void*> seen;
  for (const at::Tensor& tensor : others) {
    if (tensor.defined()) seen.insert(tensor.storage().unsafeGetStorageImpl());
  }
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

}  // namespace

void throw_not_replaced() {
  throw InvalidArgument(
      "hocket::training::checkpoint",
      "the tensors of an input or of the result cannot be replaced: visit_tensors() must visit the "
      "same tensors in each call, and the members themselves, not copies of them");
}

bool gradients_enabled() { return c10::GradMode::is_enabled(); }

std::vector<at::Tensor> run_checkpoint(const std::shared_ptr<Recomputable>& call,
                                       const std::vector<at::Tensor>& inputs,
                                       const CheckpointOptions& options) {
  auto run = c10::make_intrusive<Run>();
  run->call = call;
  run->options = options;
  run->inputs_defined = which_are_defined(inputs);
  const variable_list tensors = without_undefined(inputs);
  // Autograd makes a node of the graph only if an input requires gradients.
  const at::Tensor anchor = at::empty({0}).set_requires_grad(true);
  const variable_list outputs = CheckpointFunction::apply(run, anchor, at::TensorList(tensors));
  return with_undefined(outputs, run->outputs_defined);
}

ActivationBytes count_bytes(const std::function<std::vector<at::Tensor>()>& plain,
                            const std::function<std::vector<at::Tensor>()>& checkpointed,
                            const std::vector<at::Tensor>& inputs) {
  const c10::AutoGradMode with_gradients(true);
  const at::Tensor state = random_state();
  ActivationBytes result{.inputs = bytes_of(inputs)};
  const auto live = [&](const std::function<std::vector<at::Tensor>()>& forward) {
    const RandomStateGuard random(state);
    const auto count = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, count);
    const std::vector<at::Tensor> outputs = forward();
    result.outputs = bytes_of(outputs, inputs);
    return count->now - result.outputs;
  };
  result.plain = live(plain);
  result.checkpointed = live(checkpointed);
  return result;
}

}  // namespace hocket::training::detail
