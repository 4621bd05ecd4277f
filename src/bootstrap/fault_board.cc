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
  if (known_.count(name) != 0) return false;
  Fault copy = fault;
  if (faults_.capacity() < faults_.size() + 2) faults_.reserve(2 * faults_.size() + 8);
  known_.insert(name);
  faults_.push_back(std::move(copy));
  return true;
}

void FaultBoard::prepare_own_failure(Fault fault) {
  std::lock_guard lock(mutex_);
  own_failure_ = std::move(fault);
  faults_.reserve(faults_.size() + 1);
}

bool FaultBoard::add_own_failure() noexcept {
  std::lock_guard lock(mutex_);
  if (own_failed_) return false;
  own_failed_ = faults_.size();
  faults_.push_back(std::move(own_failure_));
  return true;
}

Fault FaultBoard::own_failure() const {
  std::lock_guard lock(mutex_);
  return faults_[own_failed_.value()];
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
  watchers_[next_token_] = std::make_shared<const std::function<void()>>(std::move(wake));
  return next_token_++;
}

void FaultBoard::unwatch(int token) {
  std::lock_guard lock(watch_mutex_);
  watchers_.erase(token);
}

void FaultBoard::wake_all() {
  std::lock_guard lock(watch_mutex_);
  // A callback may take itself away, or another one; those that it adds are not meant.
  const int end = next_token_;
  for (auto it = watchers_.begin(); it != watchers_.end() && it->first < end;) {
    const int token = it->first;
    const std::shared_ptr<const std::function<void()>> wake = it->second;
    (*wake)();
    it = watchers_.upper_bound(token);
  }
}

}  // namespace hocket
