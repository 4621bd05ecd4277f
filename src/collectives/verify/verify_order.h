// Who knows of what: the order of events among the threads of a run (a thread is a lane of a rank,
// or its prologue and epilogue).
//
// Vector clocks, over all threads where there are few. Where there are many (a lane for every pair
// of ranks), a clock covers the lanes of its own rank only; what those do not show is searched for
// in the record of who heard from whom. Both answer the same question exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/verify/verify_memory.h"

namespace hocket::internal::verify_detail {

using Clock = std::vector<std::uint32_t>;

class Order {
 public:
  /// ranks_of: the rank of every thread.
  Order(std::vector<int> ranks_of, std::size_t full_clock_threads = 2048);

  /// Thread `from` forks `to`: all that from knows, to knows.
  void fork(int from, int to) { clocks_[to] = clone(from, to); }
  /// What a thread knows, to be handed over later; it ended at `epoch`.
  struct Note {
    Clock clock;
    Epoch epoch;
    int rank = -1;
  };
  Note note(int thread) const { return {clocks_[thread], end_of(thread), rank_of_[thread]}; }
  /// The step that `thread` is about to do begins after this.
  void hear(int thread, const Note& note) { hear(thread, note.clock, note.epoch, note.rank); }
  /// The same, of what another thread knows now.
  void hear(int thread, int other) { hear(thread, clocks_[other], end_of(other), rank_of_[other]); }
  /// The thread's step has ended.
  void tick(int thread);
  /// When the step that `thread` is doing will have ended.
  Epoch next_end(int thread) const { return {thread, own_tick(thread) + 1}; }
  /// Whether it had ended before the step that `thread` is doing began.
  bool before(Epoch epoch, int thread) const;

 private:
  struct Event {
    Epoch heard;  // from another thread, before this step
    std::uint64_t number = 0;
  };
  void hear(int thread, const Clock& theirs, Epoch epoch, int rank);
  std::size_t component(int thread) const { return components_[thread]; }
  std::uint32_t own_tick(int thread) const { return clocks_[thread][component(thread)]; }
  Epoch end_of(int thread) const { return {thread, own_tick(thread)}; }
  Clock clone(int from, int to) const;
  bool found(Epoch epoch, int thread) const;

  std::vector<int> rank_of_;
  std::vector<std::size_t> components_;
  std::vector<Clock> clocks_;
  bool full_;
  std::uint64_t events_ = 0;
  std::vector<std::vector<Event>> record_;  // not full: per thread, by tick
  std::vector<Epoch> heard_;                // not full: per thread, in the step being done
};

}  // namespace hocket::internal::verify_detail
