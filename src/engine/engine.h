// The engine of one communicator: its operations, their deadlines, their errors. run_once(now) is
// one round of its loop: it never blocks, and reads the clock only if operations are traced. The
// thread that waits for the operations calls it again and again (wait.h). A round requests what
// takes time, and a later round looks at the result: the descriptor of a peer's region or eventfd,
// and the fault that explains a broken link.
//
// Collectives run one after another in call order. Sends and receives run beside them, all at once.
// The first error ends all operations and stays: the ranks may have ended different numbers of
// operations, so the communicator cannot go on.
//
// The engine decides when an operation (operation.h) begins and how it ends. Its parts know nothing
// of the engine:
//
//   Binder                finds the program of a call, and its arguments
//   BufferRegions         finds the buffers that local peers can map
//   TransportSet          polls the transports and tells them of each collective
//   CollectiveOperations  the collective under way, and those that wait
//   MessageOperations     the sends and receives under way
//   KnownFaults           the faults, and the error that waits for the fault that explains it
//   EngineError           the error that has ended the engine
//   PeerRings             rings the peers that sleep
//   Recorder              writes what other threads may read: the record (record.h)
//
// Everything outside the engine is behind one abstract class, EngineHost.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "collectives/execute/executor.h"
#include "engine/binder.h"
#include "engine/buffer_regions.h"
#include "engine/call.h"
#include "engine/collective_operations.h"
#include "engine/engine_error.h"
#include "engine/engine_host.h"
#include "engine/known_faults.h"
#include "engine/message_operations.h"
#include "engine/operation.h"
#include "engine/peer_rings.h"
#include "engine/record.h"
#include "engine/recorder.h"
#include "engine/transport_set.h"
#include "engine/work.h"

namespace hocket::internal {

struct EngineOptions {
  int rank = 0;
  int ranks = 1;
  Nanos deadline = 600 * nanos_per_s;  // of an operation, from the start of its execution
  Nanos late_log = 10 * nanos_per_s;   // between log lines about the ranks that are waited for
  std::size_t recorded = 64;           // how many operations the record keeps
  RecordSink* sink = nullptr;          // receives every operation that has ended; null: no tracing
};

class Engine {
 public:
  /// The host outlives the engine. The engine sets links.host.
  Engine(EngineHost& host, const EngineOptions& options, Links links,
         std::vector<Transport*> transports, std::unique_ptr<Selector> selector);

  /// Queues a checked call; drops it after an error. work: has begun, counts the call, and exists
  /// until the call has ended; null: the caller drives the engine until it is idle.
  void submit(const Call& call, Work* work = nullptr);
  /// submit() of a call whose thread drives the engine, and settle().
  bool run(const Call& call);
  /// To be called after run() of a message that has not ended. If nothing else is under way, polls
  /// its transport alone, at most so often: that takes less time than rounds. Returns as run().
  bool await_message(unsigned polls);
  /// True if a work has ended since the last time.
  bool take_ended_work() { return std::exchange(work_has_ended_, false); }
  /// Runs one round. Returns true if anything moved. now: empty if the caller has not read the
  /// clock. It is passed by reference, because the processor stalls when it copies an optional that
  /// was just written.
  bool run_once(const std::optional<Nanos>& now);
  /// To be called after submit(). A small call has often ended by then: if no round is needed,
  /// rings the peers that sleep, and returns true; status() is OK then. False: the caller must run
  /// rounds.
  bool settle() {
    if (!idle() || error_.is_set() || faults_.is_pending() || transports_.active()) return false;
    rings_.ring_pending();
    return true;
  }
  bool idle() const {
    return collectives_.empty() && messages_.empty() && faults_.unexplained().ok();
  }
  /// The error that has ended the engine; OK before.
  const Status& status() const { return error_.status(); }
  /// Ends all operations with an error of this rank, of which the other ranks are told. If the
  /// error is that of a broken link, the engine first waits, for up to half a second, for a fault
  /// that names the cause; no operation moves in that time.
  void fail(const Status& status);
  /// The same without the wait, for errors that arise outside of run_once().
  void fail_now(const Status& status) {
    if (!error_.is_set()) end(faults_.unexplained().ok() ? status : faults_.unexplained(), true);
  }
  /// True between the end of the engine by an error and report_failure().
  bool has_unreported_failure() const { return error_.is_unreported(); }
  /// Passes the error that has ended the engine to EngineHost::on_failure(), which may block, once.
  /// It is called outside of run_once(), by drive(), before the error is returned to the user.
  void report_failure();

  /// Set by any thread: there is a fault to look at.
  std::atomic<bool>& fault_pending() { return faults_.pending(); }
  /// Rings the peers that sleep and have not been rung since this rank last published. The caller
  /// calls it before it pauses for long.
  void ring_pending() { rings_.ring_pending(); }
  TransportSet& transports() { return transports_; }
  const TransportSet& transports() const { return transports_; }
  /// The price of a collective; 0: it has none, because no rank but the root knows its blocks.
  /// mapped: local peers can map its buffers.
  Status estimate(const Call& call, bool mapped, double* ns) {
    return binder_.estimate(call, mapped, ns);
  }
  /// Called before set_selector(): sets the algorithm for collectives that have it; empty: the
  /// cheapest.
  void force_algorithm(const char* algorithm) {
    binder_.force_algorithm(algorithm);
    forget_bindings();
  }
  /// Called while no operation runs; all ranks add the same plans.
  void add_plan(std::shared_ptr<const LoadedPlan> plan, bool forced) {
    binder_.add_plan(std::move(plan), forced);
    forget_bindings();
  }
  const LoadedPlans& loaded_plans() const { return binder_.loaded_plans(); }
  /// signature_flags: as the selector has them.
  void set_selector(std::unique_ptr<Selector> selector, std::uint8_t signature_flags) {
    recorder_.set_last_program(nullptr);  // it was the old selector's
    binder_.set_selector(std::move(selector), signature_flags);
    forget_bindings();
  }
  /// Of the last collective; null before the first. Any thread.
  const Program* last_program() const { return recorder_.last_program(); }
  /// The latest operations. Any thread.
  const OperationRecord& record() const { return recorder_.record(); }
  /// The number of the last collective that has begun here; 0: none. Any thread.
  std::uint64_t begun() const { return collectives_.begun(); }

 private:
  // ---- Calls
  bool bind(const Call& call, BoundCall& bound);
  void forget_bindings();
  void begin_or_queue(const Call& call, Work* work);
  void begin(const Call& call, Work* work);
  void begin_next();
  void begin_message(const Call& call, Work* work);
  bool advance_collective();
  bool conclude_collective();
  void complete(Operation& current);
  bool advance_messages();
  void end_message(std::size_t index);
  void end_call(Work* work);
  void fail_work(Work* work);
  // ---- Errors
  bool concerns_an_earlier(const Status& failure) const;
  bool look_at_faults(bool moved);
  void look_at_faults_before_a_call();
  void await_cause(const Status& status);
  void await_explanation(const std::optional<Nanos>& now);
  void end(const Status& status, bool tell_peers);
  // ---- Operations that take long
  void check_times(Nanos now);
  void check_time(Operation& operation, Nanos now);
  void look_for_other_calls(Nanos now);
  void miss_deadline(const Operation& operation, const std::vector<int>& ranks);
  std::string names(const std::vector<int>& ranks) const;

  EngineHost& host_;
  const EngineOptions options_;
  Links links_;
  RunAhead run_ahead_;  // of this rank
  TransportSet transports_;
  Binder binder_;
  BufferRegions buffers_;
  Recorder recorder_;
  KnownFaults faults_;
  PeerRings rings_;
  [[no_unique_address]] Exclusive round_;  // of run_once(): one thread drives the engine

  CollectiveOperations collectives_;
  MessageOperations messages_;
  bool work_has_ended_ = false;
  EngineError error_;
};

}  // namespace hocket::internal
