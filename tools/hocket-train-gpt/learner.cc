#include "learner.h"

#include <hocket/training/torch/activation_checkpoint.hpp>
#include <hocket/training/torch/autocast.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <optional>
#include <utility>

#include "agree.h"
#include "model.h"
#include "sample.h"

namespace hocket::gpt {
namespace {

using training::Phase;
using training::StepRecorder;
using training::TensorRange;

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

struct Batch {
  at::Tensor input, target;  // [windows, sequence] of int64
};

Batch batch_of(Windows windows) {
  const auto rows = static_cast<std::int64_t>(windows.size());
  const auto columns = static_cast<std::int64_t>(windows.front().size());
  const at::Tensor bytes = torch::empty({rows, columns}, torch::kLong);
  auto* to = bytes.data_ptr<std::int64_t>();
  for (const std::string_view window : windows) {
    for (const char c : window) *to++ = static_cast<unsigned char>(c);
  }
  return {bytes.slice(1, 0, columns - 1), bytes.slice(1, 1, columns)};
}

Gpt make_model(const Options& o) {
  at::set_num_threads(o.threads);
  torch::manual_seed(o.seed);
  Gpt model(ModelOptions{
      .layers = o.layers, .width = o.width, .heads = o.heads, .sequence = o.sequence});
  if (o.checkpoint_activations) {
    model->run_block = [](const auto& block, const at::Tensor& input) {
      return training::checkpoint({.name = "block", .preserve_rng = false}, block, input);
    };
  }
  return model;
}

/// What does not depend on how the ranks share the work.
class WithModel : public Learner {
 public:
  explicit WithModel(const Options& options) : options_(options), model_(make_model(options)) {}

  double evaluate(Windows windows) override {
    const torch::NoGradGuard no_grad;
    return loss(windows).item<double>();
  }
  std::string sample(const std::string& prompt, const SampleOptions& options) override {
    return gpt::sample(model_, prompt, options);
  }
  std::int64_t parameter_count() override { return model_->parameter_count(); }

 protected:
  at::Tensor loss(Windows windows) {
    const Batch batch = batch_of(windows);
    const training::AutocastGuard autocast(at::kBFloat16, options_.bfloat16);
    return model_->loss(batch.input, batch.target);
  }

  const Options& options_;
  Gpt model_;
};

/// Every rank has the parameters, the gradients and the optimizer's state. Without a communicator
/// the ranks train models of their own.
class Replicated : public WithModel {
 public:
  Replicated(const Options& options, Communicator* comm)
      : WithModel(options),
        optimizer_(groups_of(model_, options.weight_decay),
                   torch::optim::AdamWOptions(options.learning_rate)) {
    if (comm != nullptr) ddp_.emplace(*model_, *comm);
    // As the optimizer's first step would make it: so that a checkpoint has a place to load it to.
    for (const at::Tensor& p : model_->parameters()) {
      auto state = std::make_unique<torch::optim::AdamWParamState>();
      state->step(0);
      state->exp_avg(torch::zeros_like(p));
      state->exp_avg_sq(torch::zeros_like(p));
      optimizer_.state()[p.unsafeGetTensorImpl()] = std::move(state);
    }
  }

  double learn(Windows windows, double weight, bool last, StepRecorder& recorder) override {
    recorder.enter(Phase::forward);
    std::optional<training::DistributedDataParallel::NoSync> alone;
    if (ddp_ && !last) alone.emplace(ddp_->no_sync());
    const auto forward = [&] { return loss(windows); };
    const at::Tensor result = ddp_ ? ddp_->run(forward) : forward();
    recorder.enter(Phase::backward);
    (weight == 1 ? result : result * weight).backward();
    if (ddp_ && last) add_timings(ddp_->reducer(), recorder);
    recorder.enter(Phase::other);
    return result.item<double>();
  }
  double step(double learning_rate, double largest_norm, StepRecorder& recorder) override {
    recorder.enter(Phase::optimizer);
    const double norm =
        largest_norm > 0
            ? torch::nn::utils::clip_grad_norm_(model_->parameters(), largest_norm)
            : 0;
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(learning_rate);
    optimizer_.step();
    optimizer_.zero_grad();
    recorder.enter(Phase::other);
    return norm;
  }
  std::vector<TensorRange> ranges() override {
    std::vector<TensorRange> all;
    const auto add = [&](const std::string& name, const at::Tensor& tensor) {
      all.push_back({{name, hocketFloat32, tensor.sizes().vec(), {}},
                     0,
                     static_cast<std::size_t>(tensor.numel()),
                     tensor.data_ptr<float>()});
    };
    for (const auto& named : model_->named_parameters()) {
      add("parameter/" + named.key(), named.value());
      add("exp_avg/" + named.key(), state_of(named.value()).exp_avg());
      add("exp_avg_sq/" + named.key(), state_of(named.value()).exp_avg_sq());
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

  torch::optim::AdamW optimizer_;
  std::optional<training::DistributedDataParallel> ddp_;
};

}  // namespace

std::unique_ptr<Learner> make_learner(const Options& options, Communicator& comm) {
  switch (options.strategy) {
    case Strategy::none:
      return std::make_unique<Replicated>(options, nullptr);
    case Strategy::ddp:
      return std::make_unique<Replicated>(options, &comm);
    default:
      throw Refused(std::string("--strategy ") + name_of(options.strategy) + " is not here yet", 2);
  }
}

}  // namespace hocket::gpt
