#include <hocket/training/token_normalisation.hpp>

#include "training/scale.h"

namespace hocket::training {

TokenNormalisation normalise_tokens(Communicator& comm, std::uint64_t tokens, hocketRedOp_t op) {
  if (op != hocketAvg && op != hocketSum) {
    throw InvalidArgument("hocket::training::normalise_tokens",
                          "gradients are reduced by hocketAvg or hocketSum");
  }
  const std::uint64_t all = comm.all_reduce(tokens, hocketSum);
  if (all == 0) return {};
  const double weight = op == hocketAvg ? comm.ranks() : 1;
  return {.tokens = all, .factor = weight / static_cast<double>(all)};
}

void scale_gradients(const GradientReducer& gradients, double factor) {
  scale_gradients(gradients.held(), factor);
}

void scale_gradients(std::span<const TensorRange> gradients, double factor) {
  for (const TensorRange& range : gradients) {
    if (element_bytes(range.tensor.dtype) >= 2) continue;
    throw InvalidArgument("hocket::training::scale_gradients",
                          "the gradient of " + describe(range.tensor) +
                              " cannot be scaled: gradients are float64, float32, float16 or "
                              "bfloat16");
  }
  for (const TensorRange& range : gradients) multiply(range, factor);
}

}  // namespace hocket::training
