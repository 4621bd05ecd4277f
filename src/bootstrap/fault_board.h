// The faults that this rank knows, each once, and who wants to be woken by a new one. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "bootstrap/session.h"

namespace hocket {

class FaultBoard {
 public:
  /// False where it is known already. A rank dies, falls silent or leaves once, and what left in
  /// order is neither dead nor silent afterwards; the others are told apart by channel and
  /// operation.
  bool add(const Fault& fault);
  /// What add_own_failure() will add, when there is no memory for it any more.
  void prepare_own_failure(Fault fault);
  /// False where it has been added before.
  bool add_own_failure() noexcept;
  Fault own_failure() const;
  std::vector<Fault> all() const;
  bool has_left(int rank) const;
  /// Left, or dead: no message will come from it.
  bool is_gone(int rank) const;

  int watch(std::function<void()> wake);
  void unwatch(int token);
  void wake_all();  // allocates nothing

 private:
  using Name = std::tuple<Fault::Kind, int, std::uint64_t, std::uint64_t>;
  mutable std::mutex mutex_;
  std::vector<Fault> faults_;  // has room for one more, the own failure
  Fault own_failure_;
  std::optional<std::size_t> own_failed_;  // where it stands
  std::set<Name> known_;
  std::recursive_mutex watch_mutex_;  // held while a callback runs; a callback may call unwatch()
  std::map<int, std::shared_ptr<const std::function<void()>>> watchers_;
  int next_token_ = 1;
};

}  // namespace hocket
