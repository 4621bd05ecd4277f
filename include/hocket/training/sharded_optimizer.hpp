// AdamW with its state sharded over the ranks (ZeRO-1 and ZeRO-2), or whole on every rank.
//
//   GradientReducer reducer(comm, model, {.sharding = Sharding::zero1});
//   ShardedParameters parameters(reducer);         // the model reads its parameters there
//   write the initial parameters to parameters.place(p), the same on every rank
//   ShardedAdamW optimizer(parameters, {.learning_rate = 3e-4});
//   for (each step) {
//     backward, as in gradients.hpp
//     optimizer.step();                            // all ranks: the same parameters
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <hocket/training/adamw.hpp>
#include <hocket/training/sharded_parameters.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hocket::training {

/// Parameters with options of their own: for example no weight decay for those with one dimension.
struct AdamWGroup {
  std::function<bool(const Parameter&)> contains;
  AdamWOptions options;
};

struct StepOptions {
  /// Gradients are multiplied by it in the same pass over memory: the reciprocal of a loss's scale,
  /// or the factor of a clipped norm (see clip.hpp).
  double gradient_scale = 1;
  /// Does nothing if a gradient of any rank is infinite or NaN. All ranks agree on it.
  bool skip_nonfinite = false;
};

/// Owns what AdamW keeps of this rank's shard: two moments, and a float32 copy of parameters in
/// float16 or bfloat16. Used by one thread at a time; every rank makes the same calls.
class ShardedAdamW {
 public:
  /// A parameter has the options of the first group that contains it, otherwise the general ones.
  /// The float32 copies are made of the parameters now: call read_parameters() if they change other
  /// than by step(). The parameters outlive this object.
  ShardedAdamW(ShardedParameters& parameters, const AdamWOptions& options = {},
               std::vector<AdamWGroup> groups = {});
  ~ShardedAdamW();
  ShardedAdamW(const ShardedAdamW&) = delete;
  ShardedAdamW& operator=(const ShardedAdamW&) = delete;

  /// Collective. Updates this rank's shard with the held gradients, gathers the other ranks', and
  /// discards the gradients. (Without sharding they are the program's to zero.) Parameters that no
  /// rank used in this backward stay as they are, with their state. Returns false if it did nothing
  /// because of skip_nonfinite.
  bool step(const StepOptions& options = {});

  /// Options of a group; those of all other parameters come last. They may be changed between
  /// steps, on all ranks.
  [[nodiscard]] AdamWOptions& options(std::size_t group);
  [[nodiscard]] std::size_t groups() const;
  /// Of all groups.
  void set_learning_rate(double learning_rate);

  /// How many steps were made, as a checkpoint has it.
  [[nodiscard]] std::int64_t steps() const;
  void set_steps(std::int64_t steps);
  /// This rank's state, to be written to a checkpoint or read from one: "exp_avg/NAME",
  /// "exp_avg_sq/NAME" and, for parameters in float16 and bfloat16, "master/NAME".
  [[nodiscard]] std::vector<TensorRange> state();
  /// Makes the float32 copies anew: after parameters were read from a checkpoint that has none.
  void read_parameters();

  /// What this rank has allocated.
  [[nodiscard]] TrainingMemory memory() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace hocket::training
