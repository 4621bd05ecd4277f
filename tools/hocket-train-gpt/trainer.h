// The training loop of hocket-train-gpt.
#pragma once

#include <hocket/hocket.hpp>
#include <hocket/training/report.hpp>
#include <hocket/training/sampler.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "learner.h"
#include "options.h"
#include "output.h"
#include "text.h"

namespace hocket::gpt {

/// Trains until the steps or the seconds are over or a signal came to a rank; then validates, saves
/// and samples. Every rank makes the same calls. Throws Refused or hocket::Error, on all ranks.
class Trainer {
 public:
  Trainer(const Options& options, Communicator& comm);
  void run();

 private:
  /// What all ranks know at the end of a step.
  struct Agreement {
    double loss = 0;  // the mean of all ranks
    double elapsed_s = 0;
    bool stop = false;
  };

  void resume();
  void train();
  [[nodiscard]] std::string place() const;
  void save();
  void require_finite_model();
  Agreement train_step();
  Agreement agree_on(double loss);
  [[nodiscard]] double progress() const;
  [[nodiscard]] double learning_rate() const;
  std::vector<std::string_view> next_batch();
  void record_samples(const std::vector<std::uint64_t>& windows);
  double validate();
  void finish();

  const Options& options_;
  Communicator& comm_;
  std::optional<Text> text_;
  std::optional<training::DistributedSampler> sampler_;
  std::unique_ptr<Learner> learner_;
  std::optional<training::StepTrace> trace_;
  training::StepRecorder recorder_;
  Output output_;

  std::int64_t step_ = 0;        // steps of the whole training that have ended
  std::int64_t first_step_ = 0;  // of this run
  double begin_s_ = 0;
  double elapsed_s_ = 0;      // on rank 0, as all ranks know it
  std::uint64_t tokens_ = 0;  // of this rank
  bool saved_ = false;        // since the last step
  bool stopped_ = false;      // by a signal
};

}  // namespace hocket::gpt
