// The engine of one communicator: its operations, their deadlines, their errors. One visible loop,
// run_once(now), which itself never blocks and never reads the clock; whoever waits (wait.h) drives
// it. What it calls may do both: the first use of a peer's region or eventfd fetches its
// descriptor, and a broken link waits a moment for the fault that explains it.
//
// Collectives run one after another in call order; sends and receives run beside them, all at once.
// The first error ends everything in flight and stays: a communicator whose ranks have lost step
// cannot recover.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "collectives/executor.h"
#include "collectives/selector.h"
#include "engine/call.h"
#include "transport/order.h"

namespace hocket {

struct EngineOptions {
  int rank = 0;
  int ranks = 1;
  Nanos deadline = 600 * nanos_per_s;      // of an operation, from the start of its execution
  Nanos late_log = 10 * nanos_per_s;       // between log lines about who is waited for
  const CollectiveOrder* order = nullptr;  // what links find out beside their transfers
  std::function<std::string(int rank)> name_of_rank;  // "rank 3 (host h1, pid 77)"
  std::function<void(int local_rank)> ring;           // wakes a local peer that sleeps
  /// Looks at new faults: an error ends the engine. left: ranks that are gone in order.
  std::function<Status(std::vector<int>* left)> inspect_faults;
  /// Lets local peers map a region of this process. False where they cannot.
  std::function<bool(std::uint64_t region)> expose;
  /// A link broke: perhaps something better is known of why.
  std::function<Status(const Status&)> explain;
  /// The engine has failed. tell: the other ranks do not know yet.
  std::function<void(const Status&, bool tell)> on_failure;
};

class Engine {
 public:
  Engine(EngineOptions options, Links links, std::vector<Transport*> transports,
         std::unique_ptr<Selector> selector);

  /// Queues a checked call. Nothing happens to it after an error.
  void submit(const Call& call);
  /// Does what can be done now. True where anything moved. now: 0 where the caller has not read the
  /// clock.
  bool run_once(Nanos now);
  bool idle() const { return !running_ && queue_.empty() && messages_.empty(); }
  /// The first error. Stays.
  const Status& status() const { return status_; }
  /// Ends everything with an error that arose here; the other ranks are told.
  void fail(const Status& status) {
    end(status_of_call([&] { return options_.explain(status); }), true);
  }

  /// Set by any thread: there is a fault to look at.
  std::atomic<bool>& attention() { return attention_; }
  /// Rings the peers that a publication has not been told to yet. Before the caller's thread pauses
  /// for long.
  void ring_pending();
  /// Nothing but the board can have news. Before a sleep: arms the transports.
  bool uses_board_only();
  const std::vector<Transport*>& transports() const { return transports_; }
  /// signature_flags: as the selector has them.
  void set_selector(std::unique_ptr<Selector> selector, std::uint8_t signature_flags) {
    last_program_.store(nullptr, std::memory_order_release);  // it was the old selector's
    selector_ = std::move(selector);
    signature_flags_ = signature_flags;
  }
  Selector& selector() { return *selector_; }
  /// What the last collective ran; null before the first. Any thread.
  const Program* last_program() const { return last_program_.load(std::memory_order_acquire); }
  std::uint64_t sequence() const { return sequence_; }

 private:
  struct Operation {
    Execution execution;
    Call call;
    const Program* program = nullptr;
    const Program* staged = nullptr;
    Binding binding;
    Nanos started = 0;
    Nanos next_late_log = 0;
  };

  void end(const Status& status, bool tell);
  void find_places();
  bool find_place(const void* buffer, std::size_t bytes, Place* place);
  void begin(const Call& call);
  void begin_next();
  void begin_message(const Call& call);
  bool prepare(Operation& operation, const Call& call);
  bool my_turn();
  bool advance_collective();
  bool advance_messages();
  void finish_collective();
  void look_at_faults();
  void check_times(Nanos now);
  void check_time(Operation& operation, bool waits_for_turn, Nanos now);
  std::vector<int> waits_for(const Operation& operation, bool waits_for_turn) const;
  bool has_begun(int rank, const Operation& operation) const;
  std::string names(const std::vector<int>& ranks) const;
  std::size_t output_bytes(const Operation& operation) const;
  void revoke(Operation& operation);
  bool output_was_revoked(const Operation& operation) const;

  EngineOptions options_;
  Links links_;
  std::vector<Transport*> transports_;
  std::unique_ptr<Selector> selector_;
  std::uint8_t signature_flags_ = 0;
  std::atomic<bool> attention_{false};
  Status status_;

  Operation current_;
  bool running_ = false;
  bool waits_for_turn_ = false;
  bool ring_due_ = false;
  unsigned quiet_ = 0;
  std::deque<Call> queue_;
  std::vector<std::unique_ptr<Operation>> messages_;
  std::vector<std::unique_ptr<Operation>> spare_;

  struct SeenBuffer {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    std::uint64_t generation = 0;  // of Regions, when looked up
    bool mapped = false;
    Place place;
  };
  std::array<SeenBuffer, 16> seen_;  // recent lookups, by address

  std::uint64_t sequence_ = 0;          // of the last collective begun
  std::uint64_t board_sequence_ = 0;    // of the last one that used the board
  std::uint64_t all_arrived_ = 0;       // every local peer is known to have arrived at this one
  std::uint64_t call_hash_ = 0;         // of the call being prepared
  std::uint64_t regions_seen_ = 0;      // generation of Regions when current_ looked for places
  std::uint64_t last_fingerprint_ = 0;  // of board operation board_sequence_
  Signature last_signature_;
  std::vector<std::uint64_t> sent_to_, received_from_;  // messages per peer so far
  std::vector<int> left_;
  Nanos left_since_ = 0;  // with ranks that left: nothing has moved since then
  std::atomic<const Program*> last_program_ = nullptr;
};

}  // namespace hocket
