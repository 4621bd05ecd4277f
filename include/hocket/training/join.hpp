// Ranks with different numbers of steps.
#pragma once

#include <functional>
#include <hocket/training/gradients.hpp>

namespace hocket::training {

struct JoinOptions {
  /// The average of a step is over the ranks that still have data; otherwise over all ranks, so
  /// that steps late in an epoch are smaller.
  bool divide_by_active = false;
  /// A collective that the other ranks announced with Turn::other; root: the lowest rank that still
  /// has data.
  std::function<void(int root)> other{};
  /// All ranks are done; root: the lowest of the ranks that made the last step. The parameters of
  /// root are those of the whole job: ranks that were done earlier take them over.
  std::function<void(int root)> finished{};
};

/// While a Join exists, ranks may make different numbers of steps. Each rank makes one before its
/// loop, and calls finish() after it:
///
///   Join join(reducer);                       // on all ranks
///   for (each batch of this rank) { ... }
///   join.finish();
///
/// A rank in finish() takes part in the steps of the other ranks, with zeros for its gradients.
/// Each step costs one more small collective. If a Join is destroyed without finish(), because an
/// exception left the loop, the reducer's communicator is aborted: the other ranks receive an
/// error.
class Join {
 public:
  explicit Join(GradientReducer& reducer, JoinOptions options = {});
  Join(Join&& other) noexcept;
  Join& operator=(Join&&) = delete;
  ~Join();

  /// Returns when all ranks are done.
  void finish();

 private:
  GradientReducer* reducer_;
  JoinOptions options_;
};

}  // namespace hocket::training
