#include "bootstrap/fault_board.h"

namespace hocket {
namespace {
/// A rank that left one of its channels is still there for the others.
bool concerns_whole_rank(const Fault& fault) {
  return fault.kind == Fault::Kind::dead || fault.kind == Fault::Kind::silent ||
         (fault.kind == Fault::Kind::left && fault.channel == 0);
}
}  // namespace

bool FaultBoard::add(const Fault& fault) {
  std::lock_guard lock(mutex_);
  const bool whole = concerns_whole_rank(fault);
  if (whole && known_.count({Fault::Kind::left, fault.rank, 0, 0}) != 0) return false;
  const Name name{fault.kind, fault.rank, whole ? 0 : fault.channel, whole ? 0 : fault.sequence};
  if (!known_.insert(name).second) return false;
  faults_.push_back(fault);
  count_.store(faults_.size(), std::memory_order_release);
  return true;
}

std::vector<Fault> FaultBoard::all() const {
  std::lock_guard lock(mutex_);
  return faults_;
}

bool FaultBoard::has_left(int rank) const {
  std::lock_guard lock(mutex_);
  return known_.count({Fault::Kind::left, rank, 0, 0}) != 0;
}

bool FaultBoard::is_gone(int rank) const {
  std::lock_guard lock(mutex_);
  return known_.count({Fault::Kind::left, rank, 0, 0}) != 0 ||
         known_.count({Fault::Kind::dead, rank, 0, 0}) != 0;
}

int FaultBoard::watch(std::function<void()> wake) {
  std::lock_guard lock(watch_mutex_);
  watchers_[next_token_] = std::move(wake);
  return next_token_++;
}

void FaultBoard::unwatch(int token) {
  std::lock_guard lock(watch_mutex_);
  watchers_.erase(token);
}

void FaultBoard::wake_all() {
  std::lock_guard lock(watch_mutex_);
  std::vector<int> tokens;
  for (const auto& [token, wake] : watchers_) tokens.push_back(token);
  for (const int token : tokens) {
    const auto found = watchers_.find(token);  // a callback may have taken it away
    if (found == watchers_.end()) continue;
    const std::function<void()> wake = found->second;
    wake();
  }
}

}  // namespace hocket
