#include <fmt/format.h>

#include <cmath>
#include <hocket/training/agreement.hpp>
#include <hocket/training/clip.hpp>

#include "training/range_math.h"

namespace hocket::training {
namespace {

constexpr const char* operation = "hocket::training::gradient_norm";

/// Every rank comes here, because all have the same norm.
[[noreturn]] void report_nonfinite(GradientReducer& reducer, double norm) {
  const std::vector<Parameter>& parameters = reducer.parameters();
  Communicator& comm = reducer.communicator();
  std::vector<std::uint8_t> mine(parameters.size());
  for (const TensorRange& range : reducer.held()) {
    if (all_finite(range.data, range.elements, range.tensor.dtype)) continue;
    std::size_t p = 0;
    while (parameters[p].name != range.tensor.name) ++p;
    mine[p] = 1;
  }
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(mine, all);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::vector<int> ranks;
    for (int rank = 0; rank < comm.ranks(); ++rank) {
      if (all[static_cast<std::size_t>(rank) * mine.size() + p] != 0) ranks.push_back(rank);
    }
    if (ranks.empty()) continue;
    throw InvalidArgument(
        operation, fmt::format("the norm of the gradients is {}: the averaged gradient of "
                               "parameter {} is not finite, in the elements that {} {}. Lower the "
                               "learning rate or the loss's scale, or skip the step",
                               norm, describe(parameters[p]), ranks_text(ranks),
                               ranks.size() == 1 ? "holds" : "hold"));
  }
  throw InvalidArgument(operation,
                        fmt::format("the norm of the gradients is {}, though every gradient is "
                                    "finite: their powers are too large for float64",
                                    norm));
}

}  // namespace

double gradient_norm(GradientReducer& reducer, const NormOptions& options) {
  if (!(options.p > 0)) {
    throw InvalidArgument(operation, fmt::format("p is {}: norms have a positive p", options.p));
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
