// One run of all ranks' plans on symbols (verify.h says what it proves).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"
#include "collectives/verify/verify_memory.h"
#include "collectives/verify/verify_messages.h"
#include "collectives/verify/verify_order.h"

namespace hocket::internal::verify_detail {

class Run {
 public:
  /// The plans have passed check_form.
  Run(std::span<const Plan> plans, const Messages& messages, ChunkCounts counts);

  Status run();
  bool rank_order() const { return rank_order_; }
  const Status& scalars() const { return scalars_; }
  std::uint64_t steps_run() const { return steps_run_; }

 private:
  static constexpr std::int32_t nobody = -1;
  static constexpr std::uint64_t any_item = ~std::uint64_t{0};  // the item of a block passed on
  static constexpr std::uint32_t callers = 0xffffffff;          // Thread::lane

  /// A thread runs every window-th instance of a lane, one after the other; or it is the caller of
  /// a rank, which runs the entry, starts the lanes, and ends the operation.
  struct Thread {
    std::uint32_t rank = 0;
    std::uint32_t lane = callers;
    std::uint32_t instance = 0;
    std::uint32_t chunk = 0, chunks = 1;
    std::uint32_t next = 0;     // its step
    std::uint32_t checked = 0;  // how many instances or peers that its step awaits are checked
    bool done = false;
    std::vector<std::uint32_t> starts = {};  // the tick at which each of its instances started
  };
  /// The progress of an instance, which other lanes and peers see.
  struct Progress {
    std::uint32_t completed = 0;
    bool ended = false;
    std::vector<Order::Note> notes;  // of the end of each chunk, if some step awaits the lane
    std::vector<int> waiting;        // threads
  };
  struct Rank {
    int caller = 0;   // the thread of the caller; the threads of the lanes follow it
    int threads = 0;  // how many threads the lanes have
    int left = 0;     // how many of these threads have not ended
    Steps entry;
    bool board_is_free = false, arrived = false, ended = false;
    Order::Note arrival;
    std::vector<int> waiting;                 // for the arrival
    std::vector<std::vector<Epoch>> awaited;  // ends of waits for its arrival, by local peer
    std::vector<std::vector<Progress>> lanes;
    std::vector<bool> is_awaited;  // by lane
    std::uint32_t publisher[public_flags] = {};
  };
  enum class Outcome { blocked, went_on, failed };

  void make_threads();
  void mark_awaited();
  void add_inputs();
  void wake(std::vector<int>& waiting);
  Outcome go_on(int thread);
  Outcome go_on_as_caller(int thread);
  void start_lanes(std::uint32_t rank);
  void start(int thread, std::uint32_t instance);
  bool is_left_out(int thread) const;
  Outcome step(int thread);
  Outcome message(int thread);
  Outcome await_arrival(int thread);
  bool hear_arrival(int thread, std::uint32_t local);
  Outcome wait(int thread);
  Outcome await(int thread);
  bool hear_chunk(int thread, Progress& progress, std::uint32_t chunk);
  Outcome await_all_arrivals(int thread);
  bool arrive(int thread);
  void next_step(int thread);
  void end_chunk(int thread);
  void end_rank(int thread);

  // verify_run_data.cc
  bool fold(int thread);
  bool fold_block(int thread, std::uint32_t repetition);
  bool fold_in(Memory& memory, int thread, std::uint64_t item);
  bool transfer(Memory& memory, int sender, int receiver);
  bool transfer_block(Memory& memory, int sender, int receiver, std::uint32_t repetition);
  void spots_of(int thread, const std::vector<Range>& ranges, std::uint32_t repetition,
                std::vector<Spot>& spots) const;
  std::uint64_t item_of_step(int thread, std::uint32_t repetition) const;
  bool check_access(Memory& memory, int thread, const Spot& spot, bool writes);
  Cell* read(Memory& memory, int thread, const Spot& spot, std::uint64_t item);
  bool check_content(Memory& memory, int thread, const Spot& spot, std::uint64_t item,
                     const Cell& cell);
  void check_scalars(Memory& memory, int thread, bool copies);
  bool is_over(Epoch read, int thread, ValueId value) const;
  bool write(Memory& memory, int thread, const Spot& spot, ValueId value);
  bool has_met(int thread, std::uint32_t rank) const;
  bool check_end(std::uint32_t rank);
  Status check_answer(Memory& memory);
  bool is_right(ValueId id, std::uint64_t item, std::uint32_t chunk);
  std::uint32_t source_of(std::uint64_t item) const;
  Status check_barrier() const;

  Status stuck() const;
  std::string at(int thread, const Memory* memory = nullptr) const;
  bool fail(int thread, const Memory* memory, const std::string& what);
  std::string name_of_thread(Epoch epoch) const;

  const Plan& plan_of(int thread) const { return plans_[threads_[thread].rank]; }
  const Lane& lane_of(int thread) const { return plan_of(thread).lanes[threads_[thread].lane]; }
  const Steps& steps_of(int thread) const {
    const Thread& t = threads_[thread];
    return t.lane == callers ? by_rank_[t.rank].entry : lane_of(thread).steps;
  }
  const Step& current(int thread) const { return steps_of(thread)[threads_[thread].next]; }

  std::span<const Plan> plans_;
  const Messages& messages_;
  const ChunkCounts counts_;
  const bool is_barrier_;
  std::vector<Thread> threads_;
  std::vector<Rank> by_rank_;
  std::deque<int> runnable_;
  std::vector<std::int32_t> posted_;  // by message: the thread that waits for the other end
  std::unique_ptr<Order> order_;
  Values values_;
  std::vector<Memory> memories_;  // out of place, in place
  // The fold that runs, and the operands and the result of the fold in the previous memory, which
  // are mostly the same.
  std::vector<Spot> srcs_, dsts_;
  std::vector<ValueId> operands_, last_operands_;
  ValueId last_result_ = nothing;
  std::uint64_t folds_ = 0;
  ValueId known_good_ = nothing;
  Status status_, scalars_;
  bool rank_order_ = true;
  std::uint64_t steps_run_ = 0;
};

}  // namespace hocket::internal::verify_detail
