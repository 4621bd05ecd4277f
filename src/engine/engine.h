// The engine of one communicator: its operations, their deadlines, their errors. One visible loop,
// run_once(now), which never blocks, and reads the clock only where operations are traced; whoever
// waits (wait.h) drives it.
// What takes time is asked for and looked at again in a later round: the descriptor of a peer's
// region or eventfd, and the fault that explains a broken link.
//
// Collectives run one after another in call order; sends and receives run beside them, all at once.
// The first error ends everything in flight and stays: a communicator whose ranks have lost step
// cannot recover.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/execute/executor.h"
#include "collectives/select/selector.h"
#include "engine/call.h"
#include "engine/engine_host.h"
#include "engine/record.h"
#include "transport/sequence_check.h"

namespace hocket::internal {

struct EngineOptions {
  int rank = 0;
  int ranks = 1;
  Nanos deadline = 600 * nanos_per_s;  // of an operation, from the start of its execution
  Nanos late_log = 10 * nanos_per_s;   // between log lines about who is waited for
  std::size_t recorded = 64;           // how many operations the record keeps
  RecordSink* sink = nullptr;          // of every operation that has ended; null: no tracing
  const CollectiveSequenceCheck* sequence_check =
      nullptr;  // what links find out beside their transfers
};

class Engine {
 public:
  /// The host outlives the engine, which sets it in links too.
  Engine(EngineHost& host, const EngineOptions& options, Links links,
         std::vector<Transport*> transports, std::unique_ptr<Selector> selector);

  /// Queues a checked call. Nothing happens to it after an error.
  void submit(const Call& call);
  /// Does what can be done now. True where anything moved. now: empty where the caller has not read
  /// the clock.
  bool run_once(std::optional<Nanos> now);
  bool idle() const {
    return !running_ && queue_.empty() && messages_.empty() && unexplained_.ok();
  }
  /// The first error. Stays.
  const Status& status() const { return status_; }
  /// Ends everything with an error that arose here; the other ranks are told. A broken link is
  /// often only the first sign of a fault that names its cause: that error waits a moment for it,
  /// and nothing moves meanwhile.
  void fail(const Status& status);

  /// Set by any thread: there is a fault to look at.
  std::atomic<bool>& fault_pending() { return attention_; }
  /// Rings the peers that a publication has not been told to yet. Before the caller's thread pauses
  /// for long.
  void ring_pending();
  /// True where only local peers can have news, which ring the doorbell: no active transport waits
  /// for a descriptor.
  bool uses_board_only() const;
  /// Arms the transports' wait descriptors. Once before each sleep in poll.
  void prepare_to_sleep();
  const std::vector<Transport*>& transports() const { return transports_; }
  /// signature_flags: as the selector has them.
  void set_selector(std::unique_ptr<Selector> selector, std::uint8_t signature_flags) {
    last_program_.store(nullptr, std::memory_order_release);  // it was the old selector's
    first_selector_ = std::exchange(selector_, std::move(selector));
    signature_flags_ = signature_flags;
  }
  /// Of the last collective; null before the first. Any thread.
  const Program* last_program() const { return last_program_.load(std::memory_order_acquire); }
  /// The latest operations. Any thread.
  const OperationRecord& record() const { return record_; }
  /// The transports of a program's messages. Any thread.
  std::vector<const Transport*> transports_of(const Program& program) const;

 private:
  struct Operation {
    Execution execution;
    Call call;
    const Program* program = nullptr;
    const Program* staged = nullptr;
    Binding binding;
    std::optional<Nanos> started;  // empty until the clock is first read
    Nanos next_late_log = 0;
    OperationRecord::Id recorded = 0;
    bool admitted = false;  // and recorded so
    Nanos next_look = 0;    // at the ranks that it waits for
  };

  void end(const Status& status, bool tell);
  void find_regions();
  bool find_region(const void* buffer, std::size_t bytes, RegionOffset* place);
  void begin(const Call& call);
  void begin_next();
  void begin_message(const Call& call);
  bool prepare(Operation& operation, const Call& call);
  bool my_turn();
  Nanos time() const { return record_.times_all() ? monotonic_now() : now_; }
  void record(Operation& operation, std::uint64_t sequence);
  void record_end(Operation& operation, Code code);
  void record_admission(Operation& operation, Nanos now);
  void record_waits(Operation& operation, bool waits_for_turn, Nanos now);
  bool advance_collective();
  bool advance_messages();
  void finish_collective();
  bool look_at_faults(bool moved);
  void await_explanation(std::optional<Nanos> now);
  void check_times(Nanos now);
  const FaultNews::Gone* given_up(int rank, Nanos now) const;
  void check_time(Operation& operation, bool waits_for_turn, Nanos now);
  std::vector<int> waits_for(const Operation& operation, bool waits_for_turn) const;
  bool has_begun(int rank, const Operation& operation) const;
  std::string names(const std::vector<int>& ranks) const;
  std::size_t output_bytes(const Operation& operation) const;
  void revoke(Operation& operation);
  bool output_was_revoked(const Operation& operation) const;

  EngineHost& host_;
  const EngineOptions options_;
  Links links_;
  std::vector<Transport*> transports_;
  std::unique_ptr<Selector> selector_;
  std::unique_ptr<Selector> first_selector_;  // the record has operations with its programs
  OperationRecord record_;
  Nanos now_ = 0;  // of this round; 0: the clock was not read
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
    RegionOffset place;
  };
  std::array<SeenBuffer, 16> seen_;  // recent lookups, by address

  std::uint64_t sequence_ = 0;          // of the last collective begun
  std::uint64_t board_sequence_ = 0;    // of the last one that used the board
  std::uint64_t all_arrived_ = 0;       // every local peer is known to have arrived at this one
  std::uint64_t call_hash_ = 0;         // of the call being prepared
  std::uint64_t regions_seen_ = 0;      // generation of Regions when current_ looked for places
  std::uint64_t last_fingerprint_ = 0;  // of board operation board_sequence_
  Signature last_signature_;
  std::uint64_t last_collective_ = 0;                   // sequence_ of that operation
  std::vector<std::uint64_t> sent_to_, received_from_;  // messages per peer so far
  FaultNews news_;
  std::optional<Nanos> quiet_since_;  // with faults that are known: nothing has moved since then
  Status unexplained_;                // of a broken link, while a fault may still name its cause
  std::optional<Nanos> unexplained_since_;
  std::atomic<const Program*> last_program_ = nullptr;
};

}  // namespace hocket::internal
