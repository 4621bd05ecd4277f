#include "bootstrap/control/fault_log.h"

namespace hocket::internal {
namespace {

constexpr std::size_t most_strays = 1024;

bool is_end(const Fault& fault) {
  return fault.kind == Fault::Kind::dead || fault.kind == Fault::Kind::silent ||
         fault.kind == Fault::Kind::exited;
}
/// False if the rank has left one communicator only.
bool concerns_whole_rank(const Fault& fault) {
  return is_end(fault) || (fault.kind == Fault::Kind::left && fault.comm_id == 0);
}

}  // namespace

FaultLog::Name FaultLog::name_of(const Fault& fault) {
  const bool whole = concerns_whole_rank(fault);
  return {fault.kind, fault.rank, whole ? 0 : fault.comm_id, whole ? 0 : fault.sequence};
}

bool FaultLog::add(const Fault& fault) {
  std::lock_guard lock(mutex_);
  const bool whole = concerns_whole_rank(fault);
  if (whole && (known_.contains({Fault::Kind::left, fault.rank, 0, 0}) ||
                known_.contains({Fault::Kind::exited, fault.rank, 0, 0}))) {
    return false;
  }
  const bool is_stray = !whole && fault.comm_id != 0 && !open_.contains(fault.comm_id);
  // All members have opened a comm_id before a member leaves it, unless its creation failed, which
  // is another fault; and the control connections form a tree, in which no fault comes back.
  if (is_stray && fault.kind == Fault::Kind::left) return true;
  const std::uint64_t number = count_.load(std::memory_order_relaxed);
  if (!known_.emplace(name_of(fault), number).second) return false;
  faults_.emplace(number, fault);
  count_.store(number + 1, std::memory_order_release);
  if (is_stray) {
    strays_.push_back(number);
    keep_few_strays();
  }
  return true;
}

void FaultLog::forget(Faults::iterator it) {
  known_.erase(name_of(it->second));
  faults_.erase(it);
}

void FaultLog::keep_few_strays() {
  for (; strays_.size() > most_strays; strays_.pop_front()) {
    const auto found = faults_.find(strays_.front());
    if (found != faults_.end() && !open_.contains(found->second.comm_id)) forget(found);
  }
}

void FaultLog::open(std::uint64_t comm_id) {
  std::lock_guard lock(mutex_);
  ++open_[comm_id];
}

void FaultLog::close(std::uint64_t comm_id) {
  std::lock_guard lock(mutex_);
  const auto opened = open_.find(comm_id);
  if (opened == open_.end() || --opened->second > 0) return;
  open_.erase(opened);
  for (auto it = faults_.begin(); it != faults_.end();) {
    const auto next = std::next(it);
    if (it->second.comm_id == comm_id) forget(it);
    it = next;
  }
}

void FaultLog::prepare_own_failure(Fault fault) {
  Faults one;
  one.emplace(0, std::move(fault));
  std::lock_guard lock(mutex_);
  own_failure_ = one.extract(one.begin());
}

bool FaultLog::add_own_failure() noexcept {
  std::lock_guard lock(mutex_);
  if (own_failed_ || own_failure_.empty()) return false;
  own_failed_ = count_.load(std::memory_order_relaxed);
  own_failure_.key() = *own_failed_;
  faults_.insert(std::move(own_failure_));
  count_.store(*own_failed_ + 1, std::memory_order_release);
  return true;
}

Fault FaultLog::own_failure() const {
  std::lock_guard lock(mutex_);
  return faults_.at(own_failed_.value());
}

std::vector<Fault> FaultLog::all() const {
  std::lock_guard lock(mutex_);
  std::vector<Fault> out;
  for (const auto& [number, fault] : faults_) out.push_back(fault);
  return out;
}

std::vector<Fault> FaultLog::since(const FaultScope& scope, std::uint64_t* position) const {
  std::lock_guard lock(mutex_);
  std::vector<Fault> out;
  for (auto it = faults_.lower_bound(*position); it != faults_.end(); ++it) {
    if (concerns_locked(it->second, scope)) out.push_back(it->second);
  }
  *position = count_.load(std::memory_order_relaxed);
  return out;
}

bool FaultLog::concerns(const Fault& fault, const FaultScope& scope) const {
  std::lock_guard lock(mutex_);
  return concerns_locked(fault, scope);
}

bool FaultLog::concerns_locked(const Fault& fault, const FaultScope& scope) const {
  if (!scope.covers(fault)) return false;
  const bool had_left = known_.contains({Fault::Kind::left, fault.rank, scope.comm_id, 0});
  return !(is_end(fault) && had_left && scope.comm_id != 0);
}

std::size_t FaultLog::size() const {
  std::lock_guard lock(mutex_);
  return faults_.size() + known_.size() + open_.size() + strays_.size();
}

bool FaultLog::has_left(int rank) const {
  std::lock_guard lock(mutex_);
  return known_.contains({Fault::Kind::left, rank, 0, 0}) ||
         known_.contains({Fault::Kind::exited, rank, 0, 0});
}

bool FaultLog::is_gone(int rank) const {
  if (has_left(rank)) return true;
  std::lock_guard lock(mutex_);
  return known_.contains({Fault::Kind::dead, rank, 0, 0});
}

int FaultLog::watch(std::function<void()> wake) {
  std::lock_guard lock(watch_mutex_);
  watchers_[next_token_] = std::make_shared<const std::function<void()>>(std::move(wake));
  return next_token_++;
}

void FaultLog::unwatch(int token) {
  std::lock_guard lock(watch_mutex_);
  watchers_.erase(token);
}

void FaultLog::wake_all() {
  std::lock_guard lock(watch_mutex_);
  // A callback may remove itself or another callback; callbacks that it adds are not called now.
  const int end = next_token_;
  for (auto it = watchers_.begin(); it != watchers_.end() && it->first < end;) {
    const int token = it->first;
    const std::shared_ptr<const std::function<void()>> wake = it->second;
    (*wake)();
    it = watchers_.upper_bound(token);
  }
}

}  // namespace hocket::internal
