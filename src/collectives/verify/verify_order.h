// The happened-before order of the steps of a run. A thread of a run is a sequence of steps of one
// rank: a lane's instances i, i + window, i + 2 window, ..., or the rank's caller.
//
// With few threads, each has a vector clock over all threads. With many threads (a lane instance
// for each pair of ranks), a clock covers only the threads of its own rank; for threads of other
// ranks, before() searches a record of the steps at which one thread heard another. Both ways give
// the same answers.
//
// Often many threads know the same, for example the instances that await one lane. They share one
// clock until they hear something else.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/verify/verify_memory.h"

namespace hocket::internal::verify_detail {

/// The steps of other threads that a thread knows to have ended.
struct Clock {
  std::vector<std::uint32_t> ticks;  // by thread (of the same rank)
  std::vector<std::uint64_t> begun;  // barrier: ranks that have begun, one bit each
  Epoch author;                      // from this tick on, this thread knows everything in the clock
};

class Order {
 public:
  /// ranks_of: the rank of every thread. counts_begun: has_begun() will be asked.
  Order(std::vector<std::uint32_t> ranks_of, bool counts_begun,
        std::size_t full_clock_threads = 256);

  /// The knowledge of a thread at the end of its last step.
  struct Note {
    std::shared_ptr<Clock> clock;
    Epoch epoch;
  };
  Note note(int thread);
  /// The next step of `thread` happens after everything that the note covers.
  void hear(int thread, const Note& note);
  /// Ends the step of `thread`.
  void tick(int thread);
  /// Notes that the rank of `thread` has begun.
  void begin(int thread);
  /// True if the rank began before the running step of `thread` did.
  bool has_begun(std::uint32_t rank, int thread) const;
  /// The end of the step that `thread` is running.
  Epoch next_end(int thread) const { return {thread, ticks_[thread] + 1}; }
  /// True if the step that ended at `epoch` ended before the running step of `thread` began.
  bool before(Epoch epoch, int thread) const {
    return knows(thread, epoch) || (!full_ && found(epoch, thread));
  }
  /// True if before(), and the clock of `thread` says so. Fast.
  bool knows(int thread, Epoch epoch) const {
    return epoch.thread < 0 || epoch.thread == thread ||
           covers(clocks_[thread].get(), rank_of_[thread], epoch);
  }

 private:
  struct Heard {
    std::uint32_t tick;  // of the step that heard
    Epoch end;           // the end, in another thread, that this step heard
  };
  bool covers(const Clock* clock, std::uint32_t rank, Epoch epoch) const;
  Clock& own_clock(int thread);
  void hear_in_rank(int thread, const Note& note);
  bool found(Epoch epoch, int thread) const;

  std::vector<std::uint32_t> rank_of_;
  std::vector<std::uint32_t> components_;       // of a thread in a clock
  std::vector<std::uint32_t> sizes_;            // of a clock, by rank
  std::vector<std::uint32_t> ticks_;            // by thread: its steps that have ended
  std::vector<std::shared_ptr<Clock>> clocks_;  // by thread; null: it has heard nothing
  std::size_t begun_words_ = 0;
  bool full_;
  // Not full:
  std::uint64_t events_ = 0;
  std::vector<std::vector<std::uint64_t>> numbers_;  // of the events, by thread and tick
  std::vector<std::vector<Heard>> heard_;            // by thread, ascending
};

}  // namespace hocket::internal::verify_detail
