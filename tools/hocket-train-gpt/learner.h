// How the ranks share the work: one object for each --strategy.
#pragma once

#include <hocket/hocket.hpp>
#include <hocket/training/checkpoint.hpp>
#include <hocket/training/report.hpp>
#include <memory>
#include <vector>

#include "model.h"
#include "options.h"

namespace hocket::gpt {

struct Batch {
  at::Tensor input, target;  // [batch, sequence] of int64
};

/// A model under training. Every rank makes the same calls. Errors of the communication are
/// hocket::Error.
class Learner {
 public:
  virtual ~Learner() = default;
  /// Forward and backward of a part of a step, whose gradient is multiplied by weight. last: no
  /// other part follows, so the gradients are reduced. Returns the loss of the batch.
  virtual double learn(const Batch& batch, double weight, bool last,
                       training::StepRecorder& recorder) = 0;
  /// Makes the norm of all gradients at most this, and returns what it was.
  virtual double clip(double largest) = 0;
  /// The optimizer's step; then all gradients are gone.
  virtual void step(double learning_rate, training::StepRecorder& recorder) = 0;
  /// What this rank holds of the parameters and of the optimizer's state: for a checkpoint.
  virtual std::vector<training::TensorRange> ranges() = 0;
  /// The number of steps that the optimizer has made, which AdamW needs.
  virtual std::int64_t steps() = 0;
  virtual void set_steps(std::int64_t steps) = 0;
};

/// Collective. The options and the model outlive the learner. Throws hocket::Error if the models of the ranks
/// differ, and Refused if the strategy does not fit the job.
std::unique_ptr<Learner> make_learner(const Options& options, Gpt& model, Communicator& comm);

/// The loss of a forward without gradients.
double evaluate(const Options& options, Gpt& model, const Batch& batch);

}  // namespace hocket::gpt
