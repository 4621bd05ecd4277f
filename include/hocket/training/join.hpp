// Ranks with different numbers of steps.
#pragma once

#include <functional>
#include <hocket/training/gradients.hpp>

namespace hocket::training {

struct JoinOptions {
  /// The average of a step is over the ranks that still have data; otherwise over all ranks, so
  /// that steps late in an epoch are smaller.
  bool divide_by_active = false;
  /// What follows a backward and must run on all ranks: the agreement of a LossScaler, the clipped
  /// norm, the optimizer's step. Join::update() runs it on all ranks, also on those without data.
  /// Needed if gradients are sharded, because every rank has a part of the optimizer. Otherwise it
  /// keeps the optimizer's state equal on all ranks.
  std::function<void()> update{};
  /// This rank has no more data, and has taken part in a backward of the others: the averages lie
  /// at the places of the reducer.
  std::function<void()> reduced{};
  /// A collective that the other ranks announced with Turn::other; root: the lowest rank that still
  /// has data.
  std::function<void(int root)> other{};
  /// All ranks are done; root: the lowest of the ranks that made the last step. The parameters of
  /// root are those of the whole job: ranks that were done earlier take them over, unless every
  /// rank has made every update.
  std::function<void(int root)> finished{};
};

/// While a Join exists, ranks may make different numbers of steps. Each rank makes one before its
/// loop, and calls finish() after it:
///
///   Join join(reducer, {.update = [&] { optimizer.step(); }});  // on all ranks
///   for (each batch of this rank) {
///     backward
///     join.update();
///   }
///   join.finish();
///
/// A rank in finish() takes part in the steps of the other ranks: with zeros for its gradients, and
/// in each update. Without JoinOptions::update the optimizer's step is a call of the loop, and
/// only ranks that have data make it. Each backward and each update costs one more small
/// collective.
///
/// To accumulate, run all but the last backward of a step under no_sync(). A rank may end its data
/// after any backward that synchronizes; finish() throws InvalidUsage if the last one did not.
/// (Without sharding a synchronized backward that adds to averages weights these by the share of
/// ranks that have data, unless divide_by_active is set.)
///
/// If a Join is destroyed without finish(), because an exception left the loop, the other ranks get
/// RemoteError in their next call, with this rank as the culprit; or the error that all ranks have
/// got, for example because backward failed on one of them. The reducer has ended then.
class Join {
 public:
  /// Collective for the first Join of a reducer. Throws InvalidUsage if another Join of the reducer
  /// exists, or gradients are sharded and options.update is empty.
  explicit Join(GradientReducer& reducer, JoinOptions options = {});
  Join(Join&& other) noexcept;
  Join& operator=(Join&&) = delete;
  ~Join();

  /// Collective among the ranks that have data: runs JoinOptions::update on all ranks. As often as
  /// the loop likes, outside of a backward.
  void update();

  /// Returns when all ranks are done.
  void finish();

 private:
  void run_update();
  template <typename Action>
  void together(Action action);
  GradientReducer* reducer_;
  JoinOptions options_;
};

}  // namespace hocket::training
