// Which gradients are NaN or infinite, and on which ranks.
#pragma once

#include <cstddef>
#include <hocket/training/gradients.hpp>
#include <hocket/training/tensor_range.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hocket::training {

struct NonFinite {
  Parameter parameter;         // the first of the model whose gradient is not finite on some rank
  std::vector<int> ranks;      // where it is not
  std::size_t parameters = 0;  // whose gradients are not finite on some rank, the first included
  bool only_average = false;   // the gradients of all ranks were finite, but their average is not

  /// "the gradient of parameter 'x' (float32, 8 x 3) is NaN or infinite on rank 1 (and those of 2
  /// more parameters)".
  [[nodiscard]] std::string text() const;
};

/// Collective. Looks at the gradients that the ranks hold; all ranks return the same. Nothing: all
/// are finite.
///
/// An average has the NaNs of every rank. So after a backward that was synchronized `ranks` are
/// those whose own gradient was not finite before the reduction (GradientReducer::non_finite()). If
/// there is none, only_average is true, and `ranks` are those that hold the average.
[[nodiscard]] std::optional<NonFinite> find_non_finite(GradientReducer& gradients);
/// The same for other gradients. parameters: the same on all ranks. Throws InvalidArgument on all
/// ranks if a range is of none of them, or of no floating-point type of at least 16 bits.
[[nodiscard]] std::optional<NonFinite> find_non_finite(Communicator& comm,
                                                       std::span<const Parameter> parameters,
                                                       std::span<const TensorRange> gradients);

/// Throws InvalidArgument on all ranks, with NonFinite::text(), if a gradient is not finite. Its
/// culprit is the rank, if there is only one.
void require_finite(GradientReducer& gradients);

}  // namespace hocket::training
