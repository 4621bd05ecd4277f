// What an engine knows of faults: those that its host has told, since when nothing has moved, and
// the error that waits for the fault that explains it. The engine decides what a fault ends.
#pragma once

#include <atomic>
#include <optional>

#include "base/assert.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/engine_host.h"

namespace hocket::internal {

/// An error that ends an engine.
struct Ending {
  Status error;
  bool tell_peers = false;  // the other ranks do not know of it yet
};

class KnownFaults {
 public:
  /// The host outlives it. rank: of the engine.
  KnownFaults(EngineHost& host, int rank) : host_(host), rank_(rank) {}

  /// Set by any thread: there is a fault to look at.
  std::atomic<bool>& pending() { return pending_; }
  bool is_pending() const { return pending_.load(std::memory_order_relaxed); }
  /// Takes the faults that the host knows. Returns true if one of them is an error; then the next
  /// round looks again.
  bool take();
  const FaultNews& news() const { return news_; }

  // ---- Patience with operations that can still end
  /// To be called when anything has moved.
  void saw_move() { quiet_since_.reset(); }
  /// Returns true if the error of a failed collective has waited long enough for the collectives
  /// before it.
  bool patience_ends(Nanos now);
  /// True if ranks are gone, and their messages that arrived before that was known have been
  /// handled since.
  bool may_give_up(Nanos now) const {
    return !news_.gone.empty() && quiet_since_ && now > *quiet_since_;
  }
  /// The entry of a rank that is gone and whose last messages must have arrived; null: there is
  /// none. Called only where may_give_up().
  const FaultNews::Gone* given_up(int rank, Nanos now) const;

  // ---- An error that waits for its cause: of a broken link or a deadline
  /// OK: no error waits.
  const Status& unexplained() const { return unexplained_; }
  void await_cause(const Status& error);
  /// How the error that waits ends the engine: by the fault that explains it, or after half a
  /// second as it is. Empty: it waits on. now: empty if the clock was not read.
  std::optional<Ending> explain(const std::optional<Nanos>& now);
  /// To be called when the engine has ended.
  void forget_unexplained() { unexplained_ = Status(); }

 private:
  EngineHost& host_;
  const int rank_;
  std::atomic<bool> pending_{false};
  FaultNews news_;
  std::optional<Nanos> quiet_since_;  // if faults are known: nothing has moved since then
  Status unexplained_;
  std::optional<Nanos> unexplained_since_;
};

}  // namespace hocket::internal
