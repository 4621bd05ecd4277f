// What learners have in common: the model and its loss.
#pragma once

#include <cmath>
#include <hocket/training/torch/activation_checkpoint.hpp>
#include <hocket/training/torch/autocast.hpp>
#include <string>

#include "agree.h"
#include "learner.h"
#include "model.h"
#include "sample.h"

namespace hocket::gpt {

struct Batch {
  at::Tensor input, target;  // [windows, sequence] of int64
};

inline Batch batch_of(Windows windows) {
  const auto rows = static_cast<std::int64_t>(windows.size());
  const auto columns = static_cast<std::int64_t>(windows.front().size());
  const at::Tensor bytes = torch::empty({rows, columns}, torch::kLong);
  auto* to = bytes.data_ptr<std::int64_t>();
  for (const std::string_view window : windows) {
    for (const char c : window) *to++ = static_cast<unsigned char>(c);
  }
  return {bytes.slice(1, 0, columns - 1), bytes.slice(1, 1, columns)};
}

inline training::Parameter described(const std::string& name, const at::Tensor& parameter) {
  return {name, hocketFloat32, parameter.sizes().vec(), {}};
}

inline Gpt make_model(const Options& o) {
  at::set_num_threads(o.threads);
  torch::manual_seed(o.seed);
  Gpt model(
      ModelOptions{.layers = o.layers, .width = o.width, .heads = o.heads, .sequence = o.sequence});
  if (o.checkpoint_activations) {
    model->run_block = [](const auto& block, const at::Tensor& input) {
      return training::checkpoint({.name = "block", .preserve_rng = false}, block, input);
    };
  }
  return model;
}

/// Weights of products decay; biases and normalisations, which have one dimension, do not.
inline bool decays(const training::Parameter& parameter) { return parameter.sizes.size() > 1; }

class WithModel : public Learner {
 public:
  explicit WithModel(const Options& options) : options_(options), model_(make_model(options)) {}

  double evaluate(Windows windows) override {
    const torch::NoGradGuard no_grad;
    return loss(windows).item<double>();
  }
  std::string non_finite(Windows windows) override {
    for (const auto& named : model_->named_parameters()) {
      if (named.value().isfinite().all().item<bool>()) continue;
      return "parameter " + describe(described(named.key(), named.value())) + " is NaN or infinite";
    }
    const double its_loss = evaluate(windows);
    return std::isfinite(its_loss) ? "" : "its loss is " + std::to_string(its_loss);
  }
  std::string sample(const std::string& prompt, const SampleOptions& options) override {
    return gpt::sample(model_, prompt, options);
  }
  std::int64_t parameter_count() override { return model_->parameter_count(); }

 protected:
  /// Runs a collective call that gives the norm of the gradients, or throws the same error on all
  /// ranks if the norm is not finite: then the step is refused.
  template <typename Norm>
  double finite_norm(Norm norm) {
    return refusing("step " + std::to_string(steps() + 1) +
                        " is refused before it changes anything, and earlier checkpoints are as "
                        "they were: ",
                    norm);
  }
  at::Tensor loss(Windows windows) {
    const Batch batch = batch_of(windows);
    const training::AutocastGuard autocast(at::kBFloat16, options_.bfloat16);
    return model_->loss(batch.input, batch.target);
  }

  const Options& options_;
  Gpt model_;
};

}  // namespace hocket::gpt
