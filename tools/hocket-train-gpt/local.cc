// Learners that do not communicate: none, and dp.
#include <hocket/training/adamw.hpp>
#include <hocket/training/torch/data_parallel.hpp>
#include <optional>
#include <utility>

#include "with_model.h"

namespace hocket::gpt {
namespace {

using training::Phase;
using training::StepRecorder;
using training::TensorRange;

/// AdamW over a model of this process alone.
class LocalAdamW {
 public:
  LocalAdamW(Gpt& model, double weight_decay) {
    for (const auto& named : model->named_parameters()) {
      const at::Tensor& p = named.value();
      all_.push_back({{named.key(), hocketFloat32, p.sizes().vec(), {}},
                      p,
                      torch::zeros_like(p),
                      torch::zeros_like(p)});
    }
    options_.weight_decay = weight_decay;
  }
  void set_learning_rate(double rate) { options_.learning_rate = rate; }
  void step() {
    ++steps_;
    for (State& s : all_) {
      training::AdamWOptions options = options_;
      if (!decays(s.described)) options.weight_decay = 0;
      training::AdamWData data;
      data.elements = s.described.elements();
      data.parameter = s.parameter.data_ptr<float>();
      data.gradient = s.parameter.grad().data_ptr<float>();
      data.exp_avg = s.exp_avg.data_ptr<float>();
      data.exp_avg_sq = s.exp_avg_sq.data_ptr<float>();
      training::adamw(data, options, steps_);
      s.parameter.mutable_grad().reset();
    }
  }
  std::vector<TensorRange> ranges() {
    std::vector<TensorRange> all;
    const auto add = [&all](const char* kind, const State& state, const at::Tensor& tensor) {
      all.push_back({state.described, 0, state.described.elements(), tensor.data_ptr<float>()});
      all.back().tensor.name.insert(0, kind);
    };
    for (const State& s : all_) {
      add("parameter/", s, s.parameter);
      add("exp_avg/", s, s.exp_avg);
      add("exp_avg_sq/", s, s.exp_avg_sq);
    }
    return all;
  }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  struct State {
    training::Parameter described;
    at::Tensor parameter, exp_avg, exp_avg_sq;
  };
  std::vector<State> all_;
  training::AdamWOptions options_;
  std::int64_t steps_ = 0;
};

/// A model of this process alone. With several replicas each has a thread and a part of the batch.
class Local : public WithModel {
 public:
  Local(const Options& options, int replicas)
      : WithModel(options), optimizer_(model_, options.weight_decay) {
    if (replicas > 1) {
      parallel_.emplace(model_, replicas, [&options] { return make_model(options).ptr(); });
    }
  }

  double learn(Windows windows, double weight, bool /*last*/, StepRecorder& recorder) override {
    recorder.enter(parallel_ ? Phase::backward : Phase::forward);
    at::Tensor result;
    if (parallel_) {  // the threads run forward and backward, which are counted together
      const Batch batch = batch_of(windows);
      const auto loss_of = [&](GptImpl& net, const at::Tensor& input, const at::Tensor& target) {
        const training::AutocastGuard autocast(at::kBFloat16, options_.bfloat16);
        return net.loss(input, target) * weight;
      };
      result = parallel_->backward(loss_of, batch.input, batch.target) / weight;
    } else {
      result = loss(windows);
      recorder.enter(Phase::backward);
      (result * weight).backward();
    }
    recorder.enter(Phase::other);
    return result.item<double>();
  }
  double step(double learning_rate, double largest_norm, StepRecorder& recorder) override {
    recorder.enter(Phase::optimizer);
    const double norm = largest_norm > 0
                            ? torch::nn::utils::clip_grad_norm_(model_->parameters(), largest_norm)
                            : 0;
    optimizer_.set_learning_rate(learning_rate);
    optimizer_.step();
    recorder.enter(Phase::other);
    return norm;
  }
  std::vector<TensorRange> ranges() override { return optimizer_.ranges(); }
  std::int64_t steps() override { return optimizer_.steps(); }
  void set_steps(std::int64_t steps) override { optimizer_.set_steps(steps); }

 private:
  LocalAdamW optimizer_;
  std::optional<training::DataParallel<GptImpl>> parallel_;
};

}  // namespace

std::unique_ptr<Learner> make_local(const Options& options, int replicas) {
  return std::make_unique<Local>(options, replicas);
}

}  // namespace hocket::gpt
