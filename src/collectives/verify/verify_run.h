// One run of all ranks' plans on symbols (verify.h says what it proves).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"
#include "collectives/verify/verify_form.h"
#include "collectives/verify/verify_memory.h"
#include "collectives/verify/verify_order.h"

namespace hocket::internal::verify_detail {

class Run {
 public:
  /// The plans have passed check_form.
  Run(std::span<const Plan> plans, std::uint32_t chunks);

  Status run();
  bool rank_order() const { return rank_order_; }
  std::uint64_t steps_run() const { return steps_run_; }

 private:
  /// A lane of a rank, or (lane -1) its prologue and epilogue.
  struct Thread {
    int rank = 0;
    int lane = -1;
    Section section = Section::prologue;
    const Steps* steps = nullptr;
    std::size_t next = 0;
    std::uint32_t chunk = 0;
    std::uint32_t chunks = 1;
    bool started = false;
    bool done = false;
  };
  /// The clock of a thread at a publication. It is kept until its last reader has read it.
  struct Note {
    Order::Note order;
    std::vector<std::uint64_t> begun;  // barrier: ranks known to have begun, one bit each
    int readers = 0;
  };
  struct Waiter {
    std::uint16_t ordinal, lag;
    int threads;
    bool in_lane;
  };
  struct Flag {
    std::uint32_t per_chunk = 0;
    std::vector<Waiter> waiters;
    std::vector<Note> notes;  // of every notify or signal so far
  };
  struct Rank {
    int main = 0;                   // thread of the prologue and the epilogue
    std::vector<int> lane_threads;  // by lane; -1: an empty lane
    int lanes_left = 0;
    bool arrived = false;
    Note arrival;
    Flag public_flags_[public_flags];
    std::vector<Flag> private_flags;
  };
  enum class Outcome { blocked, went_on, failed };

  void make_threads();
  void count_waiters();
  void begin(int rank);
  Outcome go_on(int thread);
  Outcome step(int thread);
  Outcome message(int thread);
  Outcome await_arrival(int thread);
  Outcome wait(int thread);
  Outcome await(int thread);
  void publish(int thread);
  bool fold(int thread);
  bool fold_in(Memory& memory, int thread, std::vector<ValueId>& last_srcs, ValueId& last);
  bool transfer(Memory& memory, int sender, int receiver);
  bool read(Memory& memory, int thread, const Range& range, ValueId* value);
  bool write(Memory& memory, int thread, const Range& range, ValueId value);
  bool check_block(int thread, const Range& range, ValueId value);
  void next_step(int thread);
  void section_done(int thread);
  bool check_end(int rank);
  Note note_of(int thread, int readers) const;
  void hear(int thread, const Note& note);
  void hear_thread(int thread, int other);
  void hear_and_release(int thread, Flag& flag, std::size_t number);
  Status check_answer(Memory& memory);
  Status check_barrier() const;
  Status stuck() const;
  std::string at(int thread, const Memory* memory = nullptr) const;
  bool fail(int thread, const Memory* memory, const std::string& what);
  std::string name_of_thread(int thread) const;

  const Step& current(int thread) const {
    const Thread& t = threads_[thread];
    return (*t.steps)[t.next];
  }
  int owner(int thread, const Range& range) const {
    return range.rank == own ? threads_[thread].rank : range.rank;
  }
  bool is_wide(const Range& range) const { return range.wide && plans_[0].shape.widened; }

  std::span<const Plan> plans_;
  std::vector<const Plan*> plan_of_;
  const int ranks_;
  const std::uint32_t chunks_;
  const bool is_barrier_;
  std::vector<Thread> threads_;
  std::vector<Rank> by_rank_;
  std::vector<std::vector<std::uint64_t>> begun_;  // barrier: by thread
  std::unique_ptr<Order> order_;
  std::unique_ptr<Values> values_;
  std::vector<Memory> memories_;  // out of place, in place
  Status status_;
  bool rank_order_ = true;
  std::uint64_t steps_run_ = 0;
};

}  // namespace hocket::internal::verify_detail
