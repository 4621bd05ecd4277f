#include "collectives/verify/verify_order.h"

#include <algorithm>
#include <map>

namespace hocket::internal::verify_detail {

Order::Order(std::vector<int> ranks_of, std::size_t full_clock_threads)
    : rank_of_(std::move(ranks_of)), full_(rank_of_.size() <= full_clock_threads) {
  const std::size_t threads = rank_of_.size();
  std::map<int, std::size_t> lanes;  // number of threads, by rank
  for (std::size_t t = 0; t < threads; ++t) components_.push_back(full_ ? t : lanes[rank_of_[t]]++);
  clocks_.resize(threads);
  for (std::size_t t = 0; t < threads; ++t) clocks_[t].resize(full_ ? threads : lanes[rank_of_[t]]);
  if (full_) return;
  record_.assign(threads, {Event{}});  // tick 0: before its first step
  heard_.resize(threads);
}

Clock Order::clone(int from, int to) const {
  Clock clock = clocks_[from];
  clock[component(to)] = own_tick(to);
  return clock;
}

void Order::hear(int thread, const Clock& theirs, Epoch epoch, int rank) {
  Clock& clock = clocks_[thread];
  if (full_ || rank == rank_of_[thread]) {
    for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], theirs[i]);
  }
  if (!full_) heard_[thread] = epoch;
}

void Order::tick(int thread) {
  ++clocks_[thread][component(thread)];
  if (full_) return;
  record_[thread].push_back({heard_[thread], ++events_});
  heard_[thread] = {};
}

bool Order::before(Epoch epoch, int thread) const {
  if (epoch.thread < 0 || epoch.thread == thread) return true;
  if (full_ || rank_of_[epoch.thread] == rank_of_[thread]) {
    if (clocks_[thread][component(epoch.thread)] >= epoch.tick) return true;
  }
  return !full_ && found(epoch, thread);
}

/// Searches for `epoch` backwards from the running step of `thread`, through all ends that steps
/// heard.
bool Order::found(Epoch epoch, int thread) const {
  const std::uint64_t earliest = record_[epoch.thread][epoch.tick].number;
  std::map<int, std::uint32_t> seen;  // by thread: the steps up to this tick are searched
  std::vector<Epoch> open = {end_of(thread), heard_[thread]};
  while (!open.empty()) {
    const Epoch end = open.back();
    open.pop_back();
    if (end.thread < 0) continue;
    if (end.thread == epoch.thread && end.tick >= epoch.tick) return true;
    std::uint32_t& looked = seen[end.thread];
    for (std::uint32_t tick = end.tick; tick > looked; --tick) {
      const Event& event = record_[end.thread][tick];
      if (event.number < earliest) break;  // no earlier step can have heard `epoch`
      if (event.heard.thread >= 0) open.push_back(event.heard);
    }
    looked = std::max(looked, end.tick);
  }
  return false;
}

}  // namespace hocket::internal::verify_detail
