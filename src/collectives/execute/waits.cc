// Which ranks an operation waits for, for errors, logs and the record.
#include <algorithm>

#include "collectives/execute/executor.h"

namespace hocket::internal {

/// The ranks that the step of an active lane, or of the entry, waits for.
void Execution::add_awaited(const Active& active, std::vector<int>& ranks) const {
  const Instruction& instruction = code_[active.lane->first + active.next];
  if (active.posted) {
    ranks.push_back(static_cast<int>(instruction.peer.at(active.instance)));
    return;
  }
  const bool board = instruction.kind == StepKind::await_board;
  const bool arrival = board || instruction.kind == StepKind::await_arrival;
  if (!arrival && instruction.kind != StepKind::wait) return;
  if (!instruction.all) {
    ranks.push_back(rank_of(static_cast<int>(instruction.peer.at(active.instance))));
    return;
  }
  for (auto peer = static_cast<int>(active.cursor); peer < links_->board->local_ranks(); ++peer) {
    const bool here = board     ? has_begun(peer, board_awaits())
                      : arrival ? has_arrived(peer, operation_)
                                : wait_is_over(active, instruction, peer);
    if (!here) ranks.push_back(rank_of(peer));
  }
}

bool Execution::has_arrived(int peer, std::uint64_t operation) const {
  return links_->board->arrival(peer, operation).sequence.load(std::memory_order_relaxed) >=
         operation;
}

bool Execution::has_begun(int peer, std::uint64_t collective) const {
  return links_->board->progress(peer).begun.load(std::memory_order_relaxed) >= collective;
}

std::vector<int> Execution::waits_for() const {
  if (done_) return {};
  std::vector<int> all;
  if (mapping_of_ >= 0) all.push_back(rank_of(mapping_of_));
  if (in_lanes_) {
    for (std::size_t i = 0; i < active_count_; ++i) {
      if (!active_[i].done) add_awaited(active_[i], all);
    }
  } else {
    add_awaited(entry_, all);
  }
  std::vector<int> ranks;
  for (const int rank : all) {
    if (rank != links_->rank && std::ranges::find(ranks, rank) == ranks.end()) {
      ranks.push_back(rank);
    }
  }
  drop_those_that_wait_too(ranks);
  return ranks;
}

/// If a local rank among these ranks has not arrived, the local ranks that have arrived may be
/// waiting for it too. So they are not named.
void Execution::drop_those_that_wait_too(std::vector<int>& ranks) const {
  if (!header_->uses_node) return;
  std::vector<int> arrived;
  bool some_late = false;
  for (int local = 0; local < links_->board->local_ranks(); ++local) {
    if (has_arrived(local, operation_)) {
      arrived.push_back(rank_of(local));
    } else {
      some_late |= std::ranges::find(ranks, rank_of(local)) != ranks.end();
    }
  }
  if (!some_late) return;
  std::erase_if(ranks, [&](int rank) { return std::ranges::find(arrived, rank) != arrived.end(); });
}

}  // namespace hocket::internal
