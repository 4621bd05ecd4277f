#include "trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <hocket/training/checkpoint.hpp>

#include "agree.h"
#include "stop.h"

namespace hocket::gpt {
namespace {

using training::Metadata;
using training::Phase;

constexpr const char* of_sampler = "sampler.";
constexpr std::int64_t most_validation_windows = 64;

std::string model_text(const Options& o) {
  return fmt::format("{} layers, width {}, {} heads, sequence {}", o.layers, o.width, o.heads,
                     o.sequence);
}

const std::string& value(const Metadata& metadata, const std::string& name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) {
    throw std::runtime_error("it has no value '" + name + "': no hocket-train-gpt has saved it");
  }
  return found->second;
}

}  // namespace

Trainer::Trainer(const Options& options, Communicator& comm)
    : options_(options), comm_(comm), output_(comm.rank() == 0, options.json) {
  require_equal(comm, "command line", text_of(options));
  all_do(comm, [this] { text_.emplace(options_.text, options_.sequence); });
  require_equal(comm, "text",
                fmt::format("{} bytes, checksum {:016x}", text_->bytes(), text_->hash()));
  sampler_.emplace(static_cast<std::uint64_t>(text_->training_windows()), comm,
                   training::SamplerOptions{.seed = options.seed});
  learner_ = make_learner(options, comm);
  if (!options.resume.empty()) resume();
  if (!options.save.empty()) {
    if (options.strategy == Strategy::none && comm.ranks() > 1) {
      throw Refused("--save with --strategy none needs one rank: the ranks have different models",
                    2);
    }
    all_do(comm, [this] {
      if (comm_.rank() == 0) std::filesystem::create_directories(options_.save);
    });
  }
  if (!options.record_samples.empty()) {
    all_do(comm, [this] { std::filesystem::create_directories(options_.record_samples); });
  }
  if (!options.trace.empty()) trace_.emplace(comm);
  recorder_ = training::StepRecorder(
      {.proportional_memory = options.json, .trace = trace_ ? &*trace_ : nullptr});
}

void Trainer::resume() {
  const std::vector<training::TensorRange> ranges = learner_->ranges();
  const training::LoadedCheckpoint loaded =
      refusing(fmt::format("cannot resume from {} with the model of the command line ({}): ",
                           options_.resume, model_text(options_)),
               [&] { return training::load_checkpoint(comm_, options_.resume, ranges); });
  learner_->loaded();
  all_do(comm_, [&] {
    const Metadata& metadata = loaded.metadata.at(0);
    if (const std::string& model = value(metadata, "model"); model != model_text(options_)) {
      throw std::runtime_error(
          fmt::format("cannot resume from {}: its model has {}, that of the "
                      "command line {}",
                      options_.resume, model, model_text(options_)));
    }
    Metadata sampler;
    for (const auto& [name, text] : metadata) {
      if (name.starts_with(of_sampler)) sampler[name.substr(std::strlen(of_sampler))] = text;
    }
    sampler_->resume(sampler);
    step_ = first_step_ = std::stoll(value(metadata, "step"));
    learner_->set_steps(std::stoll(value(metadata, "optimizer.steps")));
  });
  output_.note(
      fmt::format("resumed {} at step {}: {} of {} sequences of epoch {} are done, on {} ranks "
                  "before and {} now",
                  loaded.name, step_, sampler_->consumed(), text_->training_windows(),
                  sampler_->epoch(), value(loaded.metadata.at(0), "ranks"), comm_.ranks()));
}

/// Throws Refused on all ranks if a job that resumed from the model of this step would fail at
/// once. The loss of the step is not enough: it was computed before the optimizer changed the
/// parameters.
void Trainer::require_finite_model() {
  all_do(comm_, [this] {
    const std::string_view window = text_->validation(comm_.rank() % text_->validation_windows());
    const std::string problem = learner_->non_finite(Windows(&window, 1));
    if (problem.empty()) return;
    throw std::runtime_error(fmt::format(
        "the model of step {} is not saved, because {}; earlier checkpoints are as they "
        "were. Resume with a smaller --learning-rate, or with --clip",
        step_, problem));
  });
}

void Trainer::save() {
  require_finite_model();
  Metadata metadata = {{"step", std::to_string(step_)},
                       {"optimizer.steps", std::to_string(learner_->steps())},
                       {"model", model_text(options_)},
                       {"ranks", std::to_string(comm_.ranks())}};
  for (const auto& [name, text] : sampler_->state()) metadata[of_sampler + name] = text;
  const std::string name = refusing("", [&] {
    return training::save_checkpoint(comm_, options_.save, learner_->ranges(), metadata,
                                     {.label = fmt::format("step-{}", step_), .keep = 2});
  });
  saved_ = true;
  output_.note(fmt::format("saved {}/{}", options_.save, name));
}

std::vector<std::string_view> Trainer::next_batch() {
  const auto samples = static_cast<std::size_t>(options_.batch);
  std::vector<std::uint64_t> numbers = sampler_->next_batch(samples);
  if (numbers.empty()) {
    sampler_->set_epoch(sampler_->epoch() + 1);
    numbers = sampler_->next_batch(samples);
  }
  record_samples(numbers);
  std::vector<std::string_view> windows;
  for (const std::uint64_t number : numbers) {
    windows.push_back(text_->training(static_cast<std::int64_t>(number)));
  }
  return windows;
}

/// One line for each batch: the step, the epoch, and the windows.
void Trainer::record_samples(const std::vector<std::uint64_t>& windows) {
  if (options_.record_samples.empty()) return;
  std::ofstream file(fmt::format("{}/rank-{}", options_.record_samples, comm_.rank()),
                     std::ios::app);
  file << step_ + 1 << ' ' << sampler_->epoch();
  for (const std::uint64_t window : windows) file << ' ' << window;
  file << '\n';
}

/// The part of the training that has been done.
double Trainer::progress() const {
  double part = 0;
  if (options_.steps > 0) {
    part = static_cast<double>(step_) / static_cast<double>(options_.steps);
  }
  if (options_.seconds > 0) part = std::max(part, elapsed_s_ / options_.seconds);
  return std::min(part, 1.0);
}

double Trainer::learning_rate() const {
  const double warm = options_.warm_up == 0
                          ? 1
                          : static_cast<double>(step_ + 1) / static_cast<double>(options_.warm_up);
  constexpr double pi = 3.14159265358979323846;
  const double cosine = 0.1 + 0.45 * (1 + std::cos(pi * progress()));
  return options_.learning_rate * std::min(warm, 1.0) * cosine;
}

/// The times of rank 0 and the signals of any rank count for all. A loss that is not finite ends
/// the training on all ranks.
Trainer::Agreement Trainer::agree_on(double loss) {
  const double mine[3] = {loss, training::now_s() - begin_s_, stop_wished() ? 1.0 : 0.0};
  std::vector<double> all(3 * static_cast<std::size_t>(comm_.ranks()));
  comm_.all_gather(mine, all);
  Agreement agreement{.loss = 0, .elapsed_s = all[1], .stop = false};
  for (std::size_t i = 0; i < all.size(); i += 3) {
    if (!std::isfinite(all[i])) {
      throw Refused(fmt::format("the loss of rank {} is {} at step {}: nothing was changed by this "
                                "step, and earlier checkpoints are as they were. Resume with a "
                                "smaller --learning-rate, or with --clip",
                                i / 3, all[i], step_ + 1),
                    1);
    }
    agreement.loss += all[i] / comm_.ranks();
    agreement.stop = agreement.stop || all[i + 2] > 0;
  }
  return agreement;
}

Trainer::Agreement Trainer::train_step() {
  recorder_.begin(step_ + 1);
  const std::uint64_t tokens_before = tokens_;
  double loss = 0;
  for (std::int64_t part = 0; part < options_.accumulate; ++part) {
    const std::vector<std::string_view> batch = next_batch();
    tokens_ += batch.size() * static_cast<std::size_t>(options_.sequence);
    const double weight = 1 / static_cast<double>(options_.accumulate);
    loss += weight * learner_->learn(batch, weight, part + 1 == options_.accumulate, recorder_);
  }
  const Agreement agreement = agree_on(loss);
  const double rate = learning_rate();
  const double norm = learner_->step(rate, options_.clip, recorder_);
  ++step_;
  elapsed_s_ = agreement.elapsed_s;
  saved_ = false;
  const training::StepReport report = recorder_.end();
  if (step_ % options_.report_every == 0 || step_ == first_step_ + 1) {
    output_.step({.report = report,
                  .loss = agreement.loss,
                  .learning_rate = rate,
                  .gradient_norm = norm,
                  .tokens_per_s =
                      comm_.ranks() * static_cast<double>(tokens_ - tokens_before) / report.total_s,
                  .epoch = sampler_->epoch(),
                  .consumed = sampler_->consumed()});
  }
  return agreement;
}

/// The mean loss over windows at equal distances of the validation part. Ranks take turns.
double Trainer::validate() {
  const std::int64_t count = std::min(text_->validation_windows(), most_validation_windows);
  const std::int64_t distance = text_->validation_windows() / count;
  double sum_and_windows[2] = {0, 0};
  std::vector<std::string_view> windows;
  const auto flush = [&] {
    if (windows.empty()) return;
    const auto n = static_cast<double>(windows.size());
    sum_and_windows[0] += n * learner_->evaluate(windows);
    sum_and_windows[1] += n;
    windows.clear();
  };
  for (std::int64_t i = comm_.rank(); i < count; i += comm_.ranks()) {
    windows.push_back(text_->validation(i * distance));
    if (static_cast<std::int64_t>(windows.size()) == options_.batch) flush();
  }
  flush();
  comm_.all_reduce(sum_and_windows, hocketSum);
  return sum_and_windows[0] / sum_and_windows[1];
}

/// Where an error of hocket arose.
std::string Trainer::place() const {
  const auto within = [&](const char* call) {
    return fmt::format("step {}, {}: ", step_ + 1, call);
  };
  switch (recorder_.phase()) {
    case Phase::forward:
      return within("forward");
    case Phase::backward:
      return within("backward()");
    case Phase::optimizer:
      return within("step()");
    case Phase::other:
      break;
  }
  return fmt::format("after step {}, outside of backward() and step(): ", step_);
}

void Trainer::run() {
  try {
    train();
  } catch (const Error& error) {
    hocket::detail::throw_error(error.code(), error.operation(), place() + error.what(),
                                error.culprit());
  }
}

void Trainer::train() {
  output_.note(
      fmt::format("{} parameters ({}), {} bytes of text: {} sequences to train on, {} to validate; "
                  "strategy {}, "
                  "{} ranks x batch {} x {}",
                  learner_->parameter_count(), model_text(options_), text_->bytes(),
                  text_->training_windows(), text_->validation_windows(),
                  name_of(options_.strategy), comm_.ranks(), options_.batch, options_.accumulate));
  begin_s_ = training::now_s();
  while (options_.steps == 0 || step_ < options_.steps) {
    const Agreement agreement = train_step();
    if (agreement.stop) {
      output_.note(fmt::format("a signal ends the training after step {}", step_));
      stopped_ = true;
      break;
    }
    if (options_.seconds > 0 && agreement.elapsed_s >= options_.seconds) break;
    if (options_.validate_every > 0 && step_ % options_.validate_every == 0) {
      output_.validation(step_, validate());
    }
    if (options_.save_every > 0 && step_ % options_.save_every == 0) save();
  }
  finish();
}

void Trainer::finish() {
  if (!options_.save.empty() && !saved_) save();
  if (trace_) {
    refusing("", [this] { trace_->write(options_.trace); });
    output_.note("wrote the trace " + options_.trace + "; ui.perfetto.dev shows it");
  }
  if (stopped_) return;
  output_.validation(step_, validate());
  if (comm_.rank() == 0 && options_.sample > 0) {
    output_.sample(options_.prompt,
                   learner_->sample(options_.prompt, {.bytes = options_.sample,
                                                      .temperature = options_.temperature,
                                                      .top_k = options_.top_k,
                                                      .seed = options_.seed}));
  }
  comm_.barrier();  // rank 0 may still compute
}

}  // namespace hocket::gpt
