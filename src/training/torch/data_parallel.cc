#include <ATen/Functions.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>

#include <exception>
#include <hocket/hocket.hpp>
#include <hocket/training/torch/data_parallel.hpp>
#include <string>
#include <thread>

namespace hocket::training::detail {
namespace {

constexpr const char* operation = "hocket::training::DataParallel";

/// Throws InvalidArgument if the tensors of a replica are not those of the root.
void require_same(const ::torch::OrderedDict<std::string, at::Tensor>& root,
                  const ::torch::OrderedDict<std::string, at::Tensor>& replica, std::size_t index) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(operation, "replica " + std::to_string(index) +
                                         " differs from the root: " + what +
                                         ". The factory must make modules like the root");
  };
  if (root.size() != replica.size()) {
    refuse("it has " + std::to_string(replica.size()) + " parameters or buffers, not " +
           std::to_string(root.size()));
  }
  for (const auto& each : root) {
    const at::Tensor* const other = replica.find(each.key());
    if (other == nullptr) refuse("it has no '" + each.key() + "'");
    if (other->sizes() != each.value().sizes() || other->dtype() != each.value().dtype()) {
      refuse("its '" + each.key() + "' has other sizes or another type");
    }
    if (other->is_same(each.value())) refuse("its '" + each.key() + "' is that of the root itself");
  }
}

/// By replica: its rows of each tensor of the batch.
std::vector<Parts> scatter(const std::vector<at::Tensor>& batch, std::size_t replicas) {
  std::vector<Parts> parts(replicas);
  for (const at::Tensor& tensor : batch) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != batch.front().size(0) ||
        tensor.size(0) == 0) {
      throw InvalidArgument(operation,
                            "the tensors of a batch must have the same number of rows "
                            "(their first dimension), and at least 1");
    }
    const auto of_tensor = at::tensor_split(tensor, static_cast<std::int64_t>(replicas), 0);
    for (std::size_t i = 0; i < replicas; ++i) parts[i].push_back(of_tensor[i]);
  }
  if (batch.empty()) throw InvalidArgument(operation, "the batch has no tensors");
  return parts;
}

/// Runs action(replica) for the replicas that have rows, each in a thread, and waits. The threads
/// have the caller's state (autocast, whether gradients are enabled).
void in_threads(const std::vector<Parts>& parts, const std::function<void(std::size_t)>& action) {
  const at::ThreadLocalState state;
  std::vector<std::exception_ptr> errors(parts.size());
  std::vector<std::jthread> threads;  // their destructors wait for them
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i][0].size(0) == 0) continue;
    threads.emplace_back([&, i] {
      try {
        const at::ThreadLocalStateGuard guard(state);
        action(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  threads.clear();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace

Replicas::Replicas(std::vector<std::shared_ptr<::torch::nn::Module>> modules)
    : modules_(std::move(modules)) {
  if (modules_.empty()) throw InvalidArgument(operation, "the number of replicas is less than 1");
  for (std::size_t i = 1; i < modules_.size(); ++i) {
    require_same(modules_[0]->named_parameters(), modules_[i]->named_parameters(), i);
    require_same(modules_[0]->named_buffers(), modules_[i]->named_buffers(), i);
  }
}

void Replicas::broadcast() {
  const c10::AutoGradMode no_grad(false);
  const auto parameters = modules_[0]->named_parameters();
  const auto buffers = modules_[0]->named_buffers();
  for (std::size_t i = 1; i < modules_.size(); ++i) {
    modules_[i]->train(modules_[0]->is_training());
    for (auto& each : modules_[i]->named_parameters()) {
      const at::Tensor& root = parameters[each.key()];
      each.value().copy_(root);
      each.value().set_requires_grad(root.requires_grad());
      each.value().mutable_grad() = at::Tensor();
    }
    for (auto& each : modules_[i]->named_buffers()) each.value().copy_(buffers[each.key()]);
  }
}

void Replicas::gather() {
  const c10::AutoGradMode no_grad(false);
  const auto parameters = modules_[0]->named_parameters();
  for (std::size_t i = 1; i < modules_.size(); ++i) {
    for (auto& each : modules_[i]->named_parameters()) {
      at::Tensor& gradient = each.value().mutable_grad();
      if (!gradient.defined()) continue;
      at::Tensor& sum = parameters[each.key()].mutable_grad();
      if (sum.defined()) {
        sum.add_(gradient);
      } else {
        sum = gradient;
      }
      gradient = at::Tensor();
    }
  }
}

at::Tensor Replicas::backward(const std::vector<at::Tensor>& batch, bool loss_is_mean,
                              const std::function<at::Tensor(std::size_t, const Parts&)>& loss) {
  const std::vector<Parts> parts = scatter(batch, modules_.size());
  broadcast();
  std::vector<at::Tensor> losses(parts.size());
  in_threads(parts, [&](std::size_t i) {
    const double share =
        static_cast<double>(parts[i][0].size(0)) / static_cast<double>(batch.front().size(0));
    const at::Tensor mine = loss(i, parts[i]) * (loss_is_mean ? share : 1.0);
    mine.backward();
    losses[i] = mine.detach();
  });
  gather();
  at::Tensor sum;
  for (const at::Tensor& each : losses) {
    if (each.defined()) sum = sum.defined() ? sum + each : each;
  }
  return sum;
}

at::Tensor Replicas::forward(const std::vector<at::Tensor>& batch,
                             const std::function<at::Tensor(std::size_t, const Parts&)>& output) {
  const c10::AutoGradMode no_grad(false);
  const std::vector<Parts> parts = scatter(batch, modules_.size());
  broadcast();
  std::vector<at::Tensor> outputs(parts.size());
  in_threads(parts, [&](std::size_t i) { outputs[i] = output(i, parts[i]); });
  std::erase_if(outputs, [](const at::Tensor& each) { return !each.defined(); });
  return at::cat(outputs, 0);
}

}  // namespace hocket::training::detail
