#include "collectives/verify/verify_order.h"

#include <algorithm>
#include <unordered_map>

namespace hocket::internal::verify_detail {

Order::Order(std::vector<std::uint32_t> ranks_of, bool counts_begun, std::size_t full_clock_threads)
    : rank_of_(std::move(ranks_of)), full_(rank_of_.size() <= full_clock_threads) {
  const std::size_t threads = rank_of_.size();
  std::uint32_t ranks = 0;
  for (const std::uint32_t rank : rank_of_) ranks = std::max(ranks, rank + 1);
  sizes_.resize(ranks);
  for (std::size_t t = 0; t < threads; ++t) {
    components_.push_back(full_ ? static_cast<std::uint32_t>(t) : sizes_[rank_of_[t]]++);
  }
  if (full_) sizes_.assign(ranks, static_cast<std::uint32_t>(threads));
  if (counts_begun) begun_words_ = (ranks + 63) / 64;
  ticks_.resize(threads);
  clocks_.resize(threads);
  if (full_) return;
  numbers_.assign(threads, {0});  // tick 0: before its first step
  heard_.resize(threads);
}

/// True if `clock`, of a thread of rank `rank`, says that `epoch` is over.
bool Order::covers(const Clock* clock, std::uint32_t rank, Epoch epoch) const {
  if (clock == nullptr || (!full_ && rank_of_[epoch.thread] != rank)) return false;
  return clock->ticks[components_[epoch.thread]] >= epoch.tick;
}

/// The clock of `thread`, to be changed during its running step.
Clock& Order::own_clock(int thread) {
  std::shared_ptr<Clock>& clock = clocks_[thread];
  if (clock == nullptr) {
    clock = std::make_shared<Clock>();
    clock->ticks.resize(sizes_[rank_of_[thread]]);
    clock->begun.resize(begun_words_);
  } else if (clock.use_count() > 1) {
    clock = std::make_shared<Clock>(*clock);
  }
  clock->author = next_end(thread);
  return *clock;
}

Order::Note Order::note(int thread) {
  const Epoch epoch{thread, ticks_[thread]};
  const std::shared_ptr<Clock>& clock = clocks_[thread];
  if (clock != nullptr && clock.use_count() == 1) {
    clock->ticks[components_[thread]] = epoch.tick;
    clock->author = epoch;
  }
  return {clock, epoch};
}

void Order::hear(int thread, const Note& note) {
  if (full_ || rank_of_[note.epoch.thread] == rank_of_[thread]) {
    hear_in_rank(thread, note);
  } else if (begun_words_ > 0 && note.clock != nullptr) {
    std::vector<std::uint64_t>& begun = own_clock(thread).begun;
    for (std::size_t i = 0; i < begun.size(); ++i) begun[i] |= note.clock->begun[i];
  }
  if (!full_) heard_[thread].push_back({ticks_[thread] + 1, note.epoch});
}

void Order::hear_in_rank(int thread, const Note& note) {
  const std::uint32_t rank = rank_of_[thread];
  if (knows(thread, note.epoch)) return;
  if (note.clock != nullptr && !knows(thread, note.clock->author)) {
    const Clock* const mine = clocks_[thread].get();
    // If their clock covers the step in which `mine` was made, it covers all of `mine`.
    if (mine == nullptr || covers(note.clock.get(), rank, mine->author)) {
      clocks_[thread] = note.clock;
    } else {
      Clock& clock = own_clock(thread);
      const std::uint32_t* const theirs = note.clock->ticks.data();
      for (std::size_t i = 0; i < clock.ticks.size(); ++i) {
        clock.ticks[i] = std::max(clock.ticks[i], theirs[i]);
      }
      for (std::size_t i = 0; i < clock.begun.size(); ++i) clock.begun[i] |= note.clock->begun[i];
    }
  }
  if (knows(thread, note.epoch)) return;
  own_clock(thread).ticks[components_[note.epoch.thread]] = note.epoch.tick;
}

void Order::tick(int thread) {
  ++ticks_[thread];
  if (!full_) numbers_[thread].push_back(++events_);
}

void Order::begin(int thread) {
  if (begun_words_ == 0) return;
  const std::uint32_t rank = rank_of_[thread];
  own_clock(thread).begun[rank / 64] |= std::uint64_t{1} << (rank % 64);
}

bool Order::has_begun(std::uint32_t rank, int thread) const {
  const Clock* const clock = clocks_[thread].get();
  return clock != nullptr && (clock->begun[rank / 64] >> (rank % 64) & 1) != 0;
}

/// Searches for `epoch` backwards from the running step of `thread`, through all ends that steps
/// heard.
bool Order::found(Epoch epoch, int thread) const {
  const std::uint64_t earliest = numbers_[epoch.thread][epoch.tick];
  std::unordered_map<int, std::uint32_t> seen;  // by thread: the steps up to this tick are searched
  std::vector<Epoch> open = {next_end(thread)};
  while (!open.empty()) {
    const Epoch end = open.back();
    open.pop_back();
    if (end.thread == epoch.thread && end.tick >= epoch.tick) return true;
    std::uint32_t& looked = seen[end.thread];
    const std::vector<Heard>& heard = heard_[end.thread];
    const auto later = std::ranges::upper_bound(heard, end.tick, {}, &Heard::tick);
    for (auto it = later; it != heard.begin(); --it) {
      const Heard& edge = *std::prev(it);
      // No step that ended before `epoch` did can have heard it.
      const bool ended = edge.tick < numbers_[end.thread].size();
      if (edge.tick <= looked || (ended && numbers_[end.thread][edge.tick] < earliest)) break;
      open.push_back(edge.end);
    }
    looked = std::max(looked, end.tick);
  }
  return false;
}

}  // namespace hocket::internal::verify_detail
