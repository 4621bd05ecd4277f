#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <hocket/training/agreement.hpp>
#include <hocket/training/loss_scaler.hpp>

#include "training/range_math.h"
#include "training/state.h"

namespace hocket::training {
namespace {

constexpr const char* scaler_operation = "hocket::training::LossScaler";

void require(bool condition, const char* option, double value, const char* expected) {
  if (condition) return;
  throw InvalidArgument(scaler_operation,
                        fmt::format("{} is {}: it must be {}", option, value, expected));
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(options), scale_(options.initial_scale) {
  require(is_positive(scale_), "initial_scale", scale_, "positive and finite");
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor",
          options.growth_factor, "above 1 and finite");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor",
          options.backoff_factor, "between 0 and 1");
  require(options.growth_interval > 0, "growth_interval", 0, "at least 1");
}

bool LossScaler::unscale(GradientReducer& gradients, double factor) {
  if (std::ranges::find(reducers_, &gradients) != reducers_.end()) {
    throw InvalidUsage(scaler_operation,
                       "unscale() was called for these gradients since the last update(): a second "
                       "time would divide them by the scale again");
  }
  gradients.require_all_ranks(scaler_operation);
  reducers_.push_back(&gradients);
  const bool finite = unscale(gradients.communicator(), gradients.held(), factor);
  // No optimizer's step will discard them, and the next averages are not to be added to them.
  if (!finite) gradients.discard();
  return finite;
}

bool LossScaler::unscale(Communicator& comm, std::span<const TensorRange> gradients,
                         double factor) {
  enum Finding : std::int32_t { finite = 0, not_finite = 1, wrong_type = 2 };
  std::int32_t found = finite;
  const auto wrong = std::ranges::find_if(
      gradients, [](const TensorRange& range) { return element_bytes(range.tensor.dtype) < 2; });
  if (wrong != gradients.end()) found = wrong_type;
  for (const TensorRange& range : gradients) {
    if (found != wrong_type && !training::scale(range, factor / scale_)) found = not_finite;
  }
  found = comm.all_reduce(found, hocketMax);
  if (found == wrong_type) {
    throw InvalidArgument(
        scaler_operation,
        wrong == gradients.end()
            ? "another rank gave a gradient of a type that cannot be unscaled"
            : "the gradient of " + describe(wrong->tensor) +
                  " cannot be unscaled: gradients are float64, float32, float16 or "
                  "bfloat16");
  }
  unscaled_ = true;
  found_non_finite_ = found_non_finite_ || found == not_finite;
  return found == finite;
}

void LossScaler::update() {
  if (!unscaled_) {
    throw InvalidUsage(scaler_operation,
                       "update() without unscale(): whether the gradients of this step "
                       "are finite is not known");
  }
  if (found_non_finite_) {
    scale_ *= options_.backoff_factor;
    finite_steps_ = 0;
    ++skipped_;
  } else {
    skipped_ = 0;
    if (++finite_steps_ == options_.growth_interval) {
      // At the largest scale that a float can hold it stays.
      const double grown = scale_ * options_.growth_factor;
      if (std::isfinite(static_cast<float>(grown))) scale_ = grown;
      finite_steps_ = 0;
    }
  }
  unscaled_ = found_non_finite_ = false;
  reducers_.clear();
}

std::map<std::string, std::string> LossScaler::state() const {
  return {{"scale", state_text(scale_)},
          {"finite_steps", std::to_string(finite_steps_)},
          {"skipped", std::to_string(skipped_)}};
}

void LossScaler::resume(const std::map<std::string, std::string>& state) {
  const StateReader read(scaler_operation, state);
  const double scale = read.number("scale");
  const std::uint64_t finite_steps = read.integer("finite_steps"),
                      skipped = read.integer("skipped");
  require(is_positive(scale), "the state's scale", scale, "positive and finite");
  scale_ = scale;
  // A state of a longer interval must not pass the end of this one.
  finite_steps_ = std::min(finite_steps, options_.growth_interval - 1);
  skipped_ = skipped;
  unscaled_ = found_non_finite_ = false;
  reducers_.clear();
}

}  // namespace hocket::training
