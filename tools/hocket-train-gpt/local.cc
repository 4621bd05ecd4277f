// Learners whose ranks do not train one model together: none, and dp.
#include <cmath>
#include <hocket/training/adamw.hpp>
#include <hocket/training/clip.hpp>
#include <hocket/training/non_finite.hpp>
#include <hocket/training/torch/data_parallel.hpp>
#include <optional>
#include <string>
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
      all_.push_back({described(named.key(), p), p, torch::zeros_like(p), torch::zeros_like(p)});
    }
    options_.weight_decay = weight_decay;
  }
  void set_learning_rate(double rate) { options_.learning_rate = rate; }
  /// The norm of all gradients together.
  [[nodiscard]] double gradient_norm() const {
    double sum = 0;
    for (const State& s : all_) {
      const double norm = s.parameter.grad().norm(2, at::kDouble).item<double>();
      sum += norm * norm;
    }
    return std::sqrt(sum);
  }
  /// Which gradients are not finite, on which ranks. Collective.
  [[nodiscard]] std::optional<training::NonFinite> non_finite(Communicator& comm) const {
    std::vector<training::Parameter> parameters;
    std::vector<TensorRange> gradients;
    for (const State& s : all_) {
      parameters.push_back(s.described);
      gradients.push_back(
          {s.described, 0, s.described.elements(), s.parameter.grad().data_ptr<float>()});
    }
    return training::find_non_finite(comm, parameters, gradients);
  }
  void step(double gradient_scale) {
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
      training::adamw(data, options, steps_, gradient_scale);
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
  Local(const Options& options, int replicas, Communicator& comm)
      : WithModel(options), comm_(comm), optimizer_(model_, options.weight_decay) {
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
    const double norm = finite_norm([this] { return norm_on_all_ranks(); });
    optimizer_.set_learning_rate(learning_rate);
    optimizer_.step(largest_norm > 0 ? training::clip_factor(norm, largest_norm) : 1);
    recorder.enter(Phase::other);
    return norm;
  }
  std::vector<TensorRange> ranges() override { return optimizer_.ranges(); }
  std::int64_t steps() override { return optimizer_.steps(); }
  void set_steps(std::int64_t steps) override { optimizer_.set_steps(steps); }

 private:
  /// Collective. The norm of this rank's gradients. Throws InvalidArgument on all ranks if that of
  /// any rank is not finite.
  double norm_on_all_ranks() {
    const double norm = optimizer_.gradient_norm();
    if (std::isfinite(comm_.all_reduce(norm, hocketMax))) return norm;  // NaN if a rank has NaN
    const auto found = optimizer_.non_finite(comm_);
    throw InvalidArgument(
        "hocket::training::find_non_finite",
        found.has_value() ? found->text() : "every gradient is finite, but their norm is not");
  }

  Communicator& comm_;
  LocalAdamW optimizer_;
  std::optional<training::DataParallel<GptImpl>> parallel_;
};

}  // namespace

std::unique_ptr<Learner> make_local(const Options& options, int replicas, Communicator& comm) {
  return std::make_unique<Local>(options, replicas, comm);
}

}  // namespace hocket::gpt
