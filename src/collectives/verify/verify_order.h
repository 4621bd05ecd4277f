// The happened-before order of the steps of a run. A thread of a run is a lane of a rank, or the
// prologue and epilogue of a rank.
//
// With few threads, each has a vector clock over all threads. With many threads (a lane for each
// pair of ranks), a clock covers only the lanes of its own rank; for threads of other ranks,
// before() searches a record of the steps at which one thread heard another. Both ways give the
// same answers.
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

  /// Thread `from` starts `to`: all that has happened before in `from` happens before the steps of
  /// `to`.
  void fork(int from, int to) { clocks_[to] = clone(from, to); }
  /// The clock of a thread at the end `epoch` of its last step, for a hear() later.
  struct Note {
    Clock clock;
    Epoch epoch;
    int rank = -1;
  };
  Note note(int thread) const { return {clocks_[thread], end_of(thread), rank_of_[thread]}; }
  /// The next step of `thread` happens after everything that the clock of the note covers.
  void hear(int thread, const Note& note) { hear(thread, note.clock, note.epoch, note.rank); }
  /// The same, with the clock that thread `other` has now.
  void hear(int thread, int other) { hear(thread, clocks_[other], end_of(other), rank_of_[other]); }
  /// Ends the step of `thread`.
  void tick(int thread);
  /// The end of the step that `thread` is running.
  Epoch next_end(int thread) const { return {thread, own_tick(thread) + 1}; }
  /// True if the step that ended at `epoch` ended before the running step of `thread` began.
  bool before(Epoch epoch, int thread) const;

 private:
  struct Event {
    Epoch heard;  // the end in another thread that this step heard
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
  std::vector<Epoch> heard_;                // not full: per thread, of the running step
};

}  // namespace hocket::internal::verify_detail
