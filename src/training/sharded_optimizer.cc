#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <hocket/training/sharded_optimizer.hpp>
#include <map>
#include <utility>

#include "training/range_math.h"

namespace hocket::training {
namespace {

constexpr const char* sharded_adamw_operation = "hocket::training::ShardedAdamW";

/// Zeroed memory of this process: only this rank accesses the state, and so pages that it has not
/// touched take no memory.
class StateArray {
 public:
  explicit StateArray(std::size_t bytes) : memory_(std::calloc(bytes + alignment, 1)) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  std::byte* data() const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    return reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
  }

 private:
  static constexpr std::size_t alignment = 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

/// Of all pieces of one type.
struct State {
  State(std::size_t elements, std::size_t width, bool with_master)
      : moment_width(width),
        exp_avg(elements * width),
        exp_avg_sq(elements * width),
        master(with_master ? elements * sizeof(float) : 0),
        bytes(elements * (2 * width + (with_master ? sizeof(float) : 0))) {}

  std::size_t moment_width;
  StateArray exp_avg, exp_avg_sq, master;
  std::size_t bytes;
};

}  // namespace

struct ShardedAdamW::Body {
  Body(ShardedParameters& of, const AdamWOptions& general, std::vector<AdamWGroup> its_groups)
      : parameters(of), groups(std::move(its_groups)) {
    groups.push_back({[](const Parameter&) { return true; }, general});
    for (const Parameter& parameter : all_parameters()) {
      std::size_t group = 0;
      while (!groups[group].contains(parameter)) ++group;
      group_of.push_back(group);
    }
    for (const BucketLayout::ArenaSize& size : parameters.sizes()) {
      const std::size_t width = element_bytes(size.dtype);
      states.emplace(size.dtype, State(size.bytes / width, width == 8 ? 8 : 4, width == 2));
    }
    read_parameters();
  }

  using Piece = ShardedParameters::Piece;

  const std::vector<Parameter>& all_parameters() const { return parameters.reducer().parameters(); }
  const Parameter& parameter_of(const Piece& piece) const {
    return all_parameters()[static_cast<std::size_t>(piece.parameter)];
  }
  AdamWData data_of(const Piece& piece) const {
    const hocketDataType_t dtype = parameter_of(piece).dtype;
    const State& state = states.at(dtype);
    std::byte* const master = state.master.data() + piece.state * sizeof(float);
    const std::size_t at = piece.state * state.moment_width;
    return {.elements = piece.elements,
            .dtype = dtype,
            .gradient_dtype = dtype,
            .parameter = piece.values,
            .gradient = piece.gradient,
            .master = element_bytes(dtype) == 2 ? reinterpret_cast<float*>(master) : nullptr,
            .exp_avg = state.exp_avg.data() + at,
            .exp_avg_sq = state.exp_avg_sq.data() + at};
  }

  void read_parameters() {
    for (const Piece& piece : parameters.pieces()) {
      const AdamWData data = data_of(piece);
      if (data.master != nullptr) widen(piece.values, data.master, piece.elements, data.dtype);
    }
  }
  bool step(const StepOptions& options);
  std::vector<TensorRange> state();

  ShardedParameters& parameters;
  std::vector<AdamWGroup> groups;     // the last has all other parameters
  std::vector<std::size_t> group_of;  // by parameter
  std::map<hocketDataType_t, State> states;
  std::int64_t steps = 0;
};

bool ShardedAdamW::Body::step(const StepOptions& options) {
  GradientReducer& reducer = parameters.reducer();
  if (options.skip_nonfinite && !parameters.gradients_are_finite()) {
    reducer.discard();
    return false;
  }
  ++steps;
  const std::vector<Piece> pieces = parameters.pieces();
  parameters.update(pieces, [&](const Piece& piece) {
    if (!reducer.was_used(piece.parameter)) return;
    const std::size_t group = group_of[static_cast<std::size_t>(piece.parameter)];
    adamw(data_of(piece), groups[group].options, steps, options.gradient_scale);
  });
  reducer.discard();
  return true;
}

std::vector<TensorRange> ShardedAdamW::Body::state() {
  std::vector<TensorRange> ranges;
  for (const Piece& piece : parameters.pieces()) {
    const AdamWData data = data_of(piece);
    const auto add = [&](const char* what, hocketDataType_t dtype, void* values) {
      Parameter tensor = parameter_of(piece);
      tensor.name = fmt::format("{}/{}", what, tensor.name);
      tensor.dtype = dtype;
      ranges.push_back({std::move(tensor), piece.begin, piece.elements, values});
    };
    const hocketDataType_t moments = data.dtype == hocketFloat64 ? hocketFloat64 : hocketFloat32;
    add("exp_avg", moments, data.exp_avg);
    add("exp_avg_sq", moments, data.exp_avg_sq);
    if (data.master != nullptr) add("master", hocketFloat32, data.master);
  }
  return ranges;
}

ShardedAdamW::ShardedAdamW(ShardedParameters& parameters, const AdamWOptions& options,
                           std::vector<AdamWGroup> groups)
    : body_(std::make_unique<Body>(parameters, options, std::move(groups))) {}
ShardedAdamW::~ShardedAdamW() = default;

bool ShardedAdamW::step(const StepOptions& options) { return body_->step(options); }
AdamWOptions& ShardedAdamW::options(std::size_t group) { return body_->groups.at(group).options; }
std::size_t ShardedAdamW::groups() const { return body_->groups.size(); }
void ShardedAdamW::set_learning_rate(double learning_rate) {
  for (AdamWGroup& group : body_->groups) group.options.learning_rate = learning_rate;
}
std::int64_t ShardedAdamW::steps() const { return body_->steps; }
void ShardedAdamW::set_steps(std::int64_t steps) {
  if (steps < 0)
    throw InvalidArgument(sharded_adamw_operation, fmt::format("{} steps were made", steps));
  body_->steps = steps;
}
std::vector<TensorRange> ShardedAdamW::state() { return body_->state(); }
void ShardedAdamW::read_parameters() { body_->read_parameters(); }

TrainingMemory ShardedAdamW::memory() const {
  TrainingMemory memory = body_->parameters.reducer().memory();
  memory.parameter_arena = body_->parameters.arena_bytes();
  for (const auto& [dtype, state] : body_->states) memory.optimizer_state += state.bytes;
  return memory;
}

}  // namespace hocket::training
