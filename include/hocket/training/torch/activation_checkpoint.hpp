// Activation checkpointing: less memory for about a third more time.
//
//   x = hocket::training::checkpoint([&](at::Tensor x) { return block->forward(x); }, x);
//
// The forward of the function keeps only its inputs. Backward runs the function once more, with
// gradients enabled, and then its backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hocket/training/torch/tensors.hpp>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace hocket::training {

struct CheckpointOptions {
  std::string name;          // as errors call this part of the model
  bool preserve_rng = true;  // false: saves 5 KB a call, for functions without random numbers
};

/// Bytes of tensors in CPU memory that live between the forward and the backward of a function. The
/// inputs and outputs are not counted: they are outputs and inputs of the functions around it.
struct ActivationBytes {
  std::int64_t plain = 0;         // if the function is called without checkpoint()
  std::int64_t checkpointed = 0;  // if it is called by checkpoint()
  std::int64_t inputs = 0;   // checkpoint() keeps the inputs alive, a plain call may or may not
  std::int64_t outputs = 0;  // made by the function
};

namespace detail {

/// The tensors of a value, whose places become undefined.
template <typename T>
std::vector<at::Tensor> take_tensors(T& value) {
  std::vector<at::Tensor> taken;
  for_each_tensor(value, [&](const at::Tensor& place) {
    taken.push_back(place);
    const_cast<at::Tensor&>(place) = at::Tensor();  // the value is not const
  });
  return taken;
}

[[noreturn]] void throw_not_replaced();

/// Puts tensors to the places that for_each_tensor() finds, in order.
template <typename T>
void put_tensors(T& value, const std::vector<at::Tensor>& tensors) {
  std::size_t next = 0;
  for_each_tensor(value, [&](const at::Tensor& place) {
    if (next < tensors.size()) const_cast<at::Tensor&>(place) = tensors[next];
    ++next;
  });
  bool all = next == tensors.size();
  next = 0;
  for_each_tensor(value, [&](const at::Tensor& place) {
    all = all && next < tensors.size() && place.is_same(tensors[next]);
    ++next;
  });
  if (!all) throw_not_replaced();
}

/// A call with its arguments. Lists of tensors have an undefined tensor where the value has one.
class Recomputable {
 public:
  virtual ~Recomputable() = default;
  /// Calls the function with other tensors in its arguments; returns the tensors of its result.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) = 0;
};

template <typename Function, typename... Inputs>
class RecomputableCall final : public Recomputable {
 public:
  using Result = std::decay_t<std::invoke_result_t<Function&, Inputs&...>>;

  template <typename F, typename... I>
  explicit RecomputableCall(F&& function, I&&... inputs)
      : function_(std::forward<F>(function)), inputs_(std::forward<I>(inputs)...) {}

  std::vector<at::Tensor> take_inputs() { return take_tensors(inputs_); }
  Result take_result() {
    Result result = std::move(*result_);
    result_.reset();
    return result;
  }
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    std::tuple<Inputs...> arguments = inputs_;
    put_tensors(arguments, inputs);
    result_.emplace(std::apply(function_, arguments));
    return take_tensors(*result_);
  }

 private:
  Function function_;
  std::tuple<Inputs...> inputs_;  // without their tensors, which autograd keeps
  std::optional<Result> result_;  // of the latest run, without its tensors
};

std::vector<at::Tensor> run_checkpoint(const std::shared_ptr<Recomputable>& call,
                                       const std::vector<at::Tensor>& inputs,
                                       const CheckpointOptions& options);
bool gradients_enabled();
ActivationBytes count_bytes(const std::function<std::vector<at::Tensor>()>& plain,
                            const std::function<std::vector<at::Tensor>()>& checkpointed,
                            const std::vector<at::Tensor>& inputs);

template <typename T>
concept owns_its_tensors = without_tensors<T> || !std::is_trivially_copyable_v<T>;

}  // namespace detail

/// Calls function(inputs...) and returns its result. Backward calls the function a second time.
///
/// function and inputs are copied and kept until backward; a module that the function refers to
/// must live as long, and must not change before. Inputs and result are anything that
/// for_each_tensor() understands. Tensors that the function captures count as constants, unless
/// they are leaves with requires_grad (parameters): pass every other tensor as an input. Parameters
/// get their gradients even if no input requires one.
///
/// The second call has the random numbers (libtorch's default CPU generator, which all threads of a
/// process share) and the autocast state of the first. It does again whatever else the function
/// does: running statistics of BatchNorm are updated twice.
///
/// Calls may be nested, and inside of DistributedDataParallel a parameter may be used in several
/// checkpointed parts. Without gradients enabled it only calls the function. The result always
/// requires gradients.
///
/// Backward throws c10::Error, with the name of the options, if it is the second one (without
/// retain_graph), if an input was changed in place, if the second call returns tensors of other
/// sizes or types, and for autograd::grad(), for backward with create_graph or with `inputs`.
template <typename Function, typename... Inputs>
requires std::invocable < std::decay_t<Function>
&, std::decay_t<Inputs>&... >
       auto checkpoint(const CheckpointOptions& options, Function&& function, Inputs&&... inputs) {
  static_assert((detail::owns_its_tensors<std::decay_t<Inputs>> && ...),
                "hocket: an input refers to tensors of somebody else (at::TensorList, std::span), "
                "which may be gone when backward needs them: pass a std::vector");
  using Call = detail::RecomputableCall<std::decay_t<Function>, std::decay_t<Inputs>...>;
  static_assert(!std::is_void_v<typename Call::Result>,
                "hocket: a function without a result has no backward");
  const auto call =
      std::make_shared<Call>(std::forward<Function>(function), std::forward<Inputs>(inputs)...);
  const std::vector<at::Tensor> tensors = call->take_inputs();
  const std::vector<at::Tensor> outputs = detail::gradients_enabled()
                                              ? detail::run_checkpoint(call, tensors, options)
                                              : call->run(tensors);
  typename Call::Result result = call->take_result();
  detail::put_tensors(result, outputs);
  return result;
}
template <typename Function, typename... Inputs>
requires std::invocable < std::decay_t<Function>
&, std::decay_t<Inputs>&... > auto checkpoint(Function&& function, Inputs&&... inputs) {
  return checkpoint(CheckpointOptions{}, std::forward<Function>(function),
                    std::forward<Inputs>(inputs)...);
}

/// What checkpoint() saves for this function with inputs of these sizes: plain - checkpointed bytes
/// in each place where it is used. Runs the function twice, with gradients enabled, and leaves the
/// random numbers as they were. If n parts of a model follow one another, the activations before
/// backward have
///
///   the sum of `plain` or `checkpointed` of all parts + the sum of `outputs` of all but the last
///
/// and backward adds `plain` of one checkpointed part at a time.
template <typename Function, typename... Inputs>
requires std::invocable < std::decay_t<Function>
&, std::decay_t<Inputs>&... > ActivationBytes activation_bytes(const CheckpointOptions& options,
                                                               Function&& function,
                                                               Inputs&&... inputs) {
  std::vector<at::Tensor> tensors;
  (for_each_tensor(inputs, [&](const at::Tensor& tensor) { tensors.push_back(tensor); }), ...);
  const auto list = [](auto&& result) {
    std::vector<at::Tensor> all;
    for_each_tensor(result, [&](const at::Tensor& tensor) { all.push_back(tensor); });
    return all;
  };
  return detail::count_bytes(
      [&] {
        std::tuple<std::decay_t<Inputs>...> arguments(inputs...);
        return list(std::apply(function, arguments));
      },
      [&] { return list(checkpoint(options, function, inputs...)); }, tensors);
}

template <typename Function, typename... Inputs>
requires std::invocable < std::decay_t<Function>
&, std::decay_t<Inputs>&... >
       ActivationBytes activation_bytes(Function&& function, Inputs&&... inputs) {
  return activation_bytes(CheckpointOptions{}, std::forward<Function>(function),
                          std::forward<Inputs>(inputs)...);
}

}  // namespace hocket::training
