// Training in fp16 without losing small gradients.
//
//   DistributedDataParallel ddp(*net, comm, {.on_non_finite = OnNonFinite::keep});
//   hocket::training::LossScaler scaler;
//   for (each step) {
//     (loss * scaler.scale()).backward();              // gradients are scale() times as large
//     if (scaler.unscale(ddp.reducer())) optimizer.step();
//     scaler.update();
//   }
//
// fp16 has no numbers below 6e-8 and none above 65504. The scale is as large as it can be: it grows
// when many steps have had finite gradients, and shrinks after a step that had not.
#pragma once

#include <cstdint>
#include <hocket/training/gradients.hpp>
#include <hocket/training/tensor_range.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace hocket::training {

/// The defaults are those of PyTorch's GradScaler.
struct LossScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::uint64_t growth_interval = 2000;  // steps with finite gradients before the scale grows
};

/// The factor of the loss, the same on all ranks. Every rank makes the same calls.
class LossScaler {
 public:
  /// Throws InvalidArgument if initial_scale is not positive and finite, growth_factor not above 1,
  /// backoff_factor not between 0 and 1, or growth_interval 0.
  explicit LossScaler(const LossScalerOptions& options = {});

  [[nodiscard]] double scale() const noexcept { return scale_; }

  /// Collective. Divides the gradients that this rank holds by scale(), and returns whether they
  /// were finite on all ranks. If not, no rank may make its optimizer's step; sharded gradients are
  /// discarded. Between two update()
  /// once for each optimizer's gradients, after backward and before gradients are clipped.
  /// factor: multiplies them too (see token_normalisation.hpp). One small all-reduce.
  /// The reducer has OnNonFinite::keep: otherwise the end of such a backward throws.
  /// Throws InvalidUsage if the reducer's gradients were unscaled since the last update().
  bool unscale(GradientReducer& gradients, double factor = 1);
  /// The same for other gradients: for example of a loop of one's own.
  /// Throws, on all ranks, InvalidArgument if a range is of no floating-point type of at least 16
  /// bits.
  bool unscale(Communicator& comm, std::span<const TensorRange> gradients, double factor = 1);
  /// Ends the step: after a step with gradients that were not finite the scale shrinks by
  /// backoff_factor, after growth_interval finite steps in a row it grows by growth_factor.
  /// Throws InvalidUsage if unscale() was not called since the last update().
  void update();

  /// How many steps in a row, up to the last update(), had gradients that were not finite. A few
  /// are normal when training begins. If they do not end, the model makes NaNs at any scale:
  /// GradientReducer::non_finite() names the rank and the parameter.
  [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_; }

  /// For a checkpoint: the same on all ranks.
  [[nodiscard]] std::map<std::string, std::string> state() const;
  /// Goes on with the scale of a state. The options stay those of this object.
  /// Throws InvalidArgument, and changes nothing, if it is no state of a scaler.
  void resume(const std::map<std::string, std::string>& state);

 private:
  LossScalerOptions options_;
  double scale_;
  std::uint64_t finite_steps_ = 0;  // in a row
  std::uint64_t skipped_ = 0;
  bool unscaled_ = false, found_non_finite_ = false;  // since the last update()
  std::vector<const GradientReducer*> reducers_;      // whose gradients were unscaled since then
};

}  // namespace hocket::training
