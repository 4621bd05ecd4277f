// A loss that is the mean over the tokens of all ranks.
//
// Ranks have different numbers of tokens, because texts have different lengths and padding does not
// count. Let S[r] be the sum of the losses of rank r's tokens and n[r] their number. What should be
// minimised is the mean over all tokens:
//
//   L = (S[0] + ... + S[W-1]) / N,   N = n[0] + ... + n[W-1].
//
// If each rank takes its own mean S[r] / n[r] and the gradients are averaged, the result is the
// gradient of the mean of means, in which a token of a rank with few tokens has more weight. With
// averaging, the gradient of L needs the loss f * S[r] on each rank, where
//
//   (f grad S[0] + ... + f grad S[W-1]) / W = grad L   gives   f = W / N.
//
// With micro-steps the gradients of a rank's backwards are added up, so S[r] and n[r] are the sums
// over all its micro-steps, and f is the same in each of them:
//
//   const auto mean = normalise_tokens(comm, tokens of all micro-steps of this rank);
//   for (each micro-step) (loss_sum * mean.factor).backward();   // all but the last in no_sync()
//   report(all-reduced sum of loss_sum / mean.tokens);
//
// If the number of tokens is known only after the last backward: leave the factor out of the loss,
// and give it to scale_gradients(), or to LossScaler::unscale() as its factor.
#pragma once

#include <cstdint>
#include <hocket/hocket.hpp>
#include <hocket/training/gradients.hpp>
#include <hocket/training/tensor_range.hpp>
#include <span>

namespace hocket::training {

struct TokenNormalisation {
  std::uint64_t tokens = 0;  // of all ranks
  /// What a rank multiplies the sum of its tokens' losses by, the same on all ranks. 0 if there are
  /// no tokens: then the gradients are 0 too.
  double factor = 0;
};

/// Collective: an all-reduce of 8 bytes. tokens: how many tokens of this rank count in this step,
/// over all its micro-steps. A rank that has no data left calls it with 0, so it goes on making
/// steps instead of Join. op: how gradients are reduced, hocketAvg (the default of GradientReducer)
/// or hocketSum. Throws InvalidArgument for another op.
[[nodiscard]] TokenNormalisation normalise_tokens(Communicator& comm, std::uint64_t tokens,
                                                  hocketRedOp_t op = hocketAvg);

/// Multiplies the gradients that this rank holds by factor.
void scale_gradients(const GradientReducer& gradients, double factor);
/// Throws InvalidArgument, and changes nothing, if a range is of no floating-point type of at least
/// 16 bits.
void scale_gradients(std::span<const TensorRange> gradients, double factor);

}  // namespace hocket::training
