#include "learner.h"

#include <ATen/autocast_mode.h>

#include <hocket/training/torch/ddp.hpp>
#include <hocket/training/torch/tensors.hpp>
#include <optional>
#include <utility>

#include "agree.h"

namespace hocket::gpt {
namespace {

using training::Phase;
using training::StepRecorder;
using training::TensorRange;

constexpr const char* operation = "hocket-train-gpt";

/// Products are computed in bfloat16 while such an object exists.
class Autocast {
 public:
  explicit Autocast(bool bfloat16) : on_(bfloat16) {
    if (!on_) return;
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const bool on_;
};

/// Weights of products decay; biases and normalisations, which have one dimension, do not.
std::vector<torch::optim::OptimizerParamGroup> groups_of(Gpt& model, double weight_decay) {
  std::vector<at::Tensor> decayed, others;
  for (const at::Tensor& p : model->parameters()) (p.dim() > 1 ? decayed : others).push_back(p);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (auto& [members, decay] : {std::pair{decayed, weight_decay}, std::pair{others, 0.0}}) {
    groups.emplace_back(members, std::make_unique<torch::optim::AdamWOptions>(
                                     torch::optim::AdamWOptions().weight_decay(decay)));
  }
  return groups;
}

/// Where the reducer measures its buckets.
template <typename Reducer>
void add_timings(Reducer& reducer, StepRecorder& recorder) {
  if constexpr (requires { recorder.add(reducer.last_timings()); }) {
    recorder.add(reducer.last_timings());
  }
}

template <typename Optimizer>
void set_learning_rate(Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

/// Every rank has the parameters, the gradients and the optimizer's state.
class Replicated : public Learner {
 public:
  Replicated(const Options& options, Gpt& model, Communicator* comm)
      : options_(options),
        model_(model),
        optimizer_(groups_of(model, options.weight_decay),
                   torch::optim::AdamWOptions(options.learning_rate)) {
    if (comm != nullptr) ddp_.emplace(*model, *comm);
    // As the optimizer's first step would make it: so that a checkpoint has a place to load it to.
    for (const at::Tensor& p : model->parameters()) {
      auto state = std::make_unique<torch::optim::AdamWParamState>();
      state->step(0);
      state->exp_avg(torch::zeros_like(p));
      state->exp_avg_sq(torch::zeros_like(p));
      optimizer_.state()[p.unsafeGetTensorImpl()] = std::move(state);
    }
  }

  double learn(const Batch& batch, double weight, bool last, StepRecorder& recorder) override {
    const auto forward = [&] {
      const Autocast autocast(options_.bfloat16);
      return model_->loss(batch.input, batch.target);
    };
    recorder.enter(Phase::forward);
    std::optional<training::DistributedDataParallel::NoSync> alone;
    if (ddp_ && !last) alone.emplace(ddp_->no_sync());
    const at::Tensor loss = ddp_ ? ddp_->run(forward) : forward();
    recorder.enter(Phase::backward);
    (weight == 1 ? loss : loss * weight).backward();
    if (ddp_ && last) add_timings(ddp_->reducer(), recorder);
    recorder.enter(Phase::other);
    return loss.item<double>();
  }
  double clip(double largest) override {
    return torch::nn::utils::clip_grad_norm_(model_->parameters(), largest);
  }
  void step(double learning_rate, StepRecorder& recorder) override {
    recorder.enter(Phase::optimizer);
    set_learning_rate(optimizer_, learning_rate);
    optimizer_.step();
    optimizer_.zero_grad();
    recorder.enter(Phase::other);
  }
  std::vector<TensorRange> ranges() override {
    std::vector<TensorRange> all;
    const auto add = [&](const std::string& name, const at::Tensor& tensor) {
      all.push_back({training::describe_tensor(operation, name, tensor), 0,
                     static_cast<std::size_t>(tensor.numel()), tensor.data_ptr()});
    };
    for (const auto& named : model_->named_parameters()) {
      add("parameter/" + named.key(), named.value());
      add("optimizer.exp_avg/" + named.key(), state_of(named.value()).exp_avg());
      add("optimizer.exp_avg_sq/" + named.key(), state_of(named.value()).exp_avg_sq());
    }
    return all;
  }
  std::int64_t steps() override { return state_of(model_->parameters()[0]).step(); }
  void set_steps(std::int64_t steps) override {
    for (const at::Tensor& p : model_->parameters()) state_of(p).step(steps);
  }

 private:
  torch::optim::AdamWParamState& state_of(const at::Tensor& parameter) {
    return static_cast<torch::optim::AdamWParamState&>(
        *optimizer_.state().at(parameter.unsafeGetTensorImpl()));
  }

  const Options& options_;
  Gpt& model_;
  torch::optim::AdamW optimizer_;
  std::optional<training::DistributedDataParallel> ddp_;
};

}  // namespace

std::unique_ptr<Learner> make_learner(const Options& options, Gpt& model, Communicator& comm) {
  switch (options.strategy) {
    case Strategy::none:
      return std::make_unique<Replicated>(options, model, nullptr);
    case Strategy::ddp:
      return std::make_unique<Replicated>(options, model, &comm);
    default:
      throw Refused(std::string("--strategy ") + name_of(options.strategy) + " is not here yet", 2);
  }
}

double evaluate(const Options& options, Gpt& model, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(options.bfloat16);
  return model->loss(batch.input, batch.target).item<double>();
}

}  // namespace hocket::gpt
