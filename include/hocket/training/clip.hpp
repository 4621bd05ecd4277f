// The norm of all gradients together, and gradients that are scaled down to a largest norm.
#pragma once

#include <hocket/training/gradients.hpp>

namespace hocket::training {

struct NormOptions {
  /// p of the norm (sum of |g|^p)^(1/p); infinity: the largest |g|. Positive.
  double p = 2;
  /// Throw if the norm is infinite or NaN, instead of returning it.
  bool error_if_nonfinite = false;
};

/// Collective, after end() of the reducer. The norm of the averaged gradients of the whole model.
/// It counts every element once, whichever rank holds the element. All ranks get the same norm.
///
/// Sums are in float64, so the number of ranks changes the result by rounding only: for p = 2 and N
/// elements in total by a relative error of at most N x 2^-57 + 2^-50.
/// Throws, on all ranks: InvalidArgument if p is not positive, or the norm is not finite and
/// error_if_nonfinite is set; the message names the first parameter whose gradient is not finite,
/// and the ranks that hold such elements.
[[nodiscard]] double gradient_norm(GradientReducer& reducer, const NormOptions& options = {});

/// What gradients are multiplied by so that their norm is at most max_norm:
/// max_norm / (norm + 1e-6), or 1. NaN if the norm is NaN.
[[nodiscard]] double clip_factor(double norm, double max_norm);

/// Collective, between end() of the reducer and the optimizer's step. Multiplies the held gradients
/// by clip_factor(), and returns the norm that they had. Throws as gradient_norm().
///
/// StepOptions::gradient_scale of ShardedAdamW::step() does the same without a pass over memory:
///   step({.gradient_scale = clip_factor(gradient_norm(reducer), max_norm)})
double clip_grad_norm(GradientReducer& reducer, double max_norm, const NormOptions& options = {});

}  // namespace hocket::training
