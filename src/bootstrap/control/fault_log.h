// The faults that this rank knows, each once, and the callbacks that a new fault calls.
// Thread-safe.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "bootstrap/types.h"

namespace hocket::internal {

class FaultLog {
 public:
  /// Adds a fault; returns false if the fault is known already. For each rank there is at most one
  /// fault of each of the kinds dead, silent and left, and no dead or silent after left; other
  /// faults are distinguished by comm_id and operation. A fault of kind `left` of a comm_id that is
  /// not open here counts as new, but is not kept.
  bool add(const Fault& fault);
  /// The number of faults that have been added, which is the number of the next fault.
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }
  /// Allocates the fault that add_own_failure() adds when there may be no memory.
  void prepare_own_failure(Fault fault);
  /// Adds the prepared fault; returns false if it has been added before.
  bool add_own_failure() noexcept;
  Fault own_failure() const;
  std::vector<Fault> all() const;
  std::vector<Fault> since(const FaultScope& scope, std::uint64_t* position) const;
  /// True if scope covers the fault, and it is not the end of a rank that had left its comm_id.
  bool concerns(const Fault& fault, const FaultScope& scope) const;
  void open(std::uint64_t comm_id);
  void close(std::uint64_t comm_id);
  std::size_t size() const;
  bool has_left(int rank) const;  // true also if its process ended by exit() or a return from main
  /// True if the rank has left or is dead, so that it sends no more messages.
  bool is_gone(int rank) const;

  int watch(std::function<void()> wake);
  void unwatch(int token);
  void wake_all();  // allocates nothing

 private:
  using Name = std::tuple<Fault::Kind, int, std::uint64_t, std::uint64_t>;
  using Faults = std::map<std::uint64_t, Fault>;  // by number
  static Name name_of(const Fault& fault);
  bool concerns_locked(const Fault& fault, const FaultScope& scope) const;
  void forget(Faults::iterator it);
  void keep_few_strays();

  mutable std::mutex mutex_;
  Faults faults_;
  Faults::node_type own_failure_;            // until it is added
  std::optional<std::uint64_t> own_failed_;  // its number, when it has been added
  std::map<Name, std::uint64_t> known_;      // their numbers
  std::map<std::uint64_t, int> open_;        // how often each comm_id is open
  std::deque<std::uint64_t> strays_;         // numbers of faults whose comm_id was not open
  std::atomic<std::uint64_t> count_{0};
  std::recursive_mutex watch_mutex_;  // held while a callback runs; a callback may call unwatch()
  std::map<int, std::shared_ptr<const std::function<void()>>> watchers_;
  int next_token_ = 1;
};

}  // namespace hocket::internal
