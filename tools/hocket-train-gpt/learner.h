// A model under training: one kind for each --strategy. This header knows nothing of libtorch.
#pragma once

#include <cstdint>
#include <hocket/hocket.hpp>
#include <hocket/training/report.hpp>
#include <hocket/training/tensor_range.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "options.h"

namespace hocket::gpt {

/// Windows of text of one length: byte i + 1 of a window is the target of its byte i.
using Windows = std::span<const std::string_view>;

struct SampleOptions {
  std::int64_t bytes = 200;
  double temperature = 0.8;  // 0: always the likeliest byte
  std::int64_t top_k = 40;   // only the likeliest so many bytes are drawn
  std::uint64_t seed = 1;
};

/// Every rank makes the same calls, except where a call is said to be not collective. Errors of the
/// communication are hocket::Error.
class Learner {
 public:
  virtual ~Learner() = default;
  /// Forward and backward of a part of a step, whose gradient is multiplied by weight. last: no
  /// other part follows, so the gradients are reduced. Returns the loss: the mean over the bytes,
  /// in nats.
  virtual double learn(Windows windows, double weight, bool last,
                       training::StepRecorder& recorder) = 0;
  /// The optimizer's step, with gradients that are scaled down to a norm of at most largest_norm
  /// (0: any). Then the gradients are gone. Returns the norm that they had. Throws Refused on all
  /// ranks, and changes nothing, if the norm is not finite.
  virtual double step(double learning_rate, double largest_norm,
                      training::StepRecorder& recorder) = 0;
  /// What this rank holds of the parameters and of the optimizer's state: for a checkpoint. Not
  /// collective.
  virtual std::vector<training::TensorRange> ranges() = 0;
  /// The number of steps that the optimizer has made, which AdamW needs. Not collective.
  virtual std::int64_t steps() = 0;
  virtual void set_steps(std::int64_t steps) = 0;
  /// Collective: after a load into the ranges.
  virtual void loaded() {}

  /// The loss without learning. Not collective.
  virtual double evaluate(Windows windows) = 0;
  /// The first parameter that has NaN or infinite elements, or else the loss of the windows if it
  /// is not finite, as a clause; empty: neither. Not collective.
  virtual std::string non_finite(Windows windows) = 0;
  /// The prompt (at least one byte) and what the model goes on with. Depends on the weights, the
  /// prompt and the options alone. Not collective.
  virtual std::string sample(const std::string& prompt, const SampleOptions& options) = 0;
  [[nodiscard]] virtual std::int64_t parameter_count() = 0;
};

/// Collective. The options and the communicator outlive the learner. Throws hocket::Error if the
/// models of the ranks differ, and Refused if the strategy does not fit the job.
std::unique_ptr<Learner> make_learner(const Options& options, Communicator& comm);
/// Its parts: dp and none, and the strategies whose ranks train one model together.
std::unique_ptr<Learner> make_local(const Options& options, int replicas, Communicator& comm);
std::unique_ptr<Learner> make_distributed(const Options& options, Communicator& comm);

}  // namespace hocket::gpt
