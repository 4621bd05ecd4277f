#include <fmt/format.h>

#include <cmath>
#include <hocket/training/clip.hpp>
#include <hocket/training/non_finite.hpp>

#include "training/range_math.h"

namespace hocket::training {
namespace {

constexpr const char* norm_operation = "hocket::training::gradient_norm";

/// Every rank comes here, because all have the same norm.
[[noreturn]] void report_nonfinite(GradientReducer& reducer, double norm) {
  const std::optional<NonFinite> found = find_non_finite(reducer);
  const std::string why =
      found.has_value() ? found->text() + ". Lower the learning rate, or skip the step"
                        : "every gradient is finite, but their powers are too large for float64";
  throw InvalidArgument(norm_operation,
                        fmt::format("the norm of the gradients is {}: {}", norm, why));
}

}  // namespace

double gradient_norm(GradientReducer& reducer, const NormOptions& options) {
  if (!(options.p > 0)) {
    throw InvalidArgument(norm_operation,
                          fmt::format("p is {}: norms have a positive p", options.p));
  }
  const bool is_largest = std::isinf(options.p);
  double sum[1] = {0};
  for (const TensorRange& range : reducer.held()) {
    const double part = sum_of_powers(range.data, range.elements, range.tensor.dtype, options.p);
    if (!is_largest) {
      sum[0] += part;
    } else if (!(part <= sum[0]) && !std::isnan(sum[0])) {
      sum[0] = part;
    }
  }
  if (reducer.sharded()) {
    reducer.require_all_ranks(norm_operation);
    reducer.communicator().all_reduce(sum, is_largest ? hocketMax : hocketSum);
  }
  const double norm = is_largest ? sum[0] : std::pow(sum[0], 1 / options.p);
  if (options.error_if_nonfinite && !std::isfinite(norm)) report_nonfinite(reducer, norm);
  return norm;
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

double clip_grad_norm(GradientReducer& reducer, double max_norm, const NormOptions& options) {
  const double norm = gradient_norm(reducer, options);
  const double factor = clip_factor(norm, max_norm);
  if (factor == 1) return norm;
  for (const TensorRange& range : reducer.held()) {
    scale(range.data, range.elements, range.tensor.dtype, factor);
  }
  return norm;
}

}  // namespace hocket::training
