#include "engine/known_faults.h"

namespace hocket::internal {
namespace {

// If nothing moves, this is how long the error of a failed collective waits for the collectives
// before it, which can still end.
constexpr Nanos patience_with_earlier = nanos_per_s;

// How long the error of a broken link or of a missed deadline waits for the fault that names its
// cause.
constexpr Nanos patience_for_explanation = 500 * nanos_per_ms;

}  // namespace

bool KnownFaults::take() {
  pending_.store(false, std::memory_order_relaxed);
  host_.poll_faults(&news_);
  if (news_.error.ok()) return false;
  pending_.store(true, std::memory_order_relaxed);
  return true;
}

bool KnownFaults::patience_ends(Nanos now) {
  if (!quiet_since_ && (!news_.gone.empty() || !news_.error.ok())) quiet_since_ = now;
  return !news_.error.ok() && now - *quiet_since_ >= patience_with_earlier;
}

const FaultNews::Gone* KnownFaults::given_up(int rank, Nanos now) const {
  HOCKET_ASSERT(quiet_since_.has_value(), "patience is counted from a time");
  for (const FaultNews::Gone& gone : news_.gone) {
    if (gone.rank == rank && now - *quiet_since_ >= gone.patience) return &gone;
  }
  return nullptr;
}

void KnownFaults::await_cause(const Status& error) {
  unexplained_ = error;
  unexplained_since_.reset();
  pending_.store(true, std::memory_order_relaxed);
}

std::optional<Ending> KnownFaults::explain(const std::optional<Nanos>& now) {
  if (pending_.exchange(false, std::memory_order_relaxed)) {
    best_effort([this] { host_.poll_faults(&news_); });
  }
  // Of two ranks whose link broke, each may name the other: then this rank keeps its own error. An
  // abort by this rank names it too, and is the cause.
  const auto is_remote = [](const Status& error) { return error.code() == Code::remote_error; };
  const bool blames_us = is_remote(news_.error) && news_.error.culprit() == rank_;
  if (blames_us && is_remote(unexplained_)) return Ending{unexplained_, true};
  if (!news_.error.ok()) return Ending{news_.error, false};
  for (const FaultNews::Gone& gone : news_.gone) {
    if (gone.rank != unexplained_.culprit()) continue;
    return Ending{gone.why.ok() ? unexplained_ : gone.why, true};
  }
  if (!now) return {};
  if (!unexplained_since_) unexplained_since_ = now;
  if (*now - *unexplained_since_ < patience_for_explanation) return {};
  return Ending{unexplained_, true};
}

}  // namespace hocket::internal
