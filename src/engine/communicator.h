// A communicator: some ranks of a session, the board and the transports between them, and the
// engine over both. It is the host of its engine (EngineHost), and owns
//
//   Membership      its ranks, their names, and what faults mean to it
//   CommLinks       all that is between the ranks: node segment, memory of peers, transports
//   CallOrder       the tickets, which keep the order of calls
//   HandoverQueue   calls of other threads for the thread that drives the engine
//   Calibration     the agreement of the ranks, while the communicator is made
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/stop.h"
#include "bootstrap/session.h"
#include "engine/call.h"
#include "engine/call_order.h"
#include "engine/comm_config.h"
#include "engine/comm_links.h"
#include "engine/engine.h"
#include "engine/error_cell.h"
#include "engine/handover.h"
#include "engine/membership.h"
#include "engine/record_dump.h"
#include "engine/shared_parts.h"
#include "engine/trace_file.h"
#include "engine/transport_factory.h"
#include "engine/wait.h"

namespace hocket::internal {

/// The objects outside a new communicator that it uses. All of them outlive the communicator,
/// except `stop`, which outlives only its making.
struct CommContext {
  SharedParts& shared;  // of the process
  ErrorCell& errors;    // of this communicator
  /// Ends the making early with Code::aborted, on all ranks; may be null.
  StopRequest* stop = nullptr;
  /// Makes the transports, also for the communicators that are split off.
  const TransportFactory& factory = default_transports();
  /// Communicator::figures_for() of the parent. Empty: the ranks measure the figures.
  std::optional<Figures> figures = {};
};

class Communicator final : private EngineHost {
 public:
  /// All ranks of `members` (session ranks, in communicator order) call it, with equal arguments.
  /// parent: the comm_id of the communicator from which this one is made, which is open and whose
  /// abort ends the making; 0: none.
  static Status create(std::shared_ptr<Session> session, std::vector<int> members,
                       std::uint64_t comm_id, std::uint64_t parent, const CommConfig& config,
                       const CommContext& context, std::unique_ptr<Communicator>* out);
  /// Waits for the calls made so far, and says goodbye. Waits for no peer beyond the deadline.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return membership_.rank(); }
  int ranks() const { return membership_.ranks(); }
  int local_rank() const { return membership_.local_rank(); }
  int local_ranks() const { return membership_.local_ranks(); }
  int nodes() const { return membership_.nodes(); }
  const Membership& membership() const { return membership_; }
  const CommConfig& config() const { return config_; }
  /// Static strings; "none" before the first collective.
  const char* last_algorithm() const;
  const char* last_transport() const;

  /// Colors of a split. no_color: the rank gets no communicator. duplicate: all ranks give it, and
  /// the new communicator has the same ranks in the same order.
  static constexpr int no_color = -1, duplicate = -2;
  /// Collective. The split has a ticket as other calls have, and this communicator may be destroyed
  /// as soon as the split has ended its part on it. no_color: *out stays empty. errors, stop: those
  /// of the new communicator; stop ends the making of the new communicator, but not the call on
  /// this one.
  Status split(CallOrder::Ticket ticket, int color, int key, const CommConfig& config,
               ErrorCell& errors, StopRequest* stop, std::unique_ptr<Communicator>* out);

  /// Collective; not while calls are pending on streams of other threads. Reads, verifies and adds
  /// a plan. Afterwards all ranks have the plan, or none; an error in the plan does not end this
  /// communicator. forced: the plan runs every call that it can serve.
  Status load_plan(std::string_view json, bool forced);

  // ---- Running calls
  CallOrder& order() { return order_; }
  SharedParts& shared() const { return shared_; }
  /// Waits for all calls and for all ranks, then says goodbye to them: no call follows.
  Status finalize();

  /// Runs a call to its end, while no other call is pending. Returns the error that ended the call.
  /// If an error is known that did not end it, the next call returns it.
  Status run(const Call& call) {
    try {
      if (engine_->run(call)) return {};
      if (is_p2p(call) && engine_->await_message(oversubscription_.policy().polls_alone)) return {};
    } catch (const std::exception&) {
      return fail_by_exception();
    }
    return drive_to_end();
  }
  /// The same for several calls, at least one.
  Status run(std::span<const Call> calls);
  HandoverQueue& handovers() { return handovers_; }
  /// Called by the thread that drives the engine: submits calls. error: if it is not OK, ends the
  /// communicator with it instead of running the calls.
  void submit(std::span<const Call> calls, const Status& error, Work* work);
  /// Any thread: wakes the thread that drives the engine.
  void wake_driver() { links_.doorbells().wake(); }
  Sleeper sleeper() const {
    return {engine_.get(), &links_.board(), links_.doorbells().event_fd()};
  }
  Oversubscription& oversubscription() { return oversubscription_; }

  /// Appends the record of operations to the file; empty: to the log. Any thread.
  Status dump_record(const std::string& file) const { return dump_->write(file); }

  /// The memory that this communicator holds. Any thread.
  struct Memory {
    std::uint64_t board = 0;    // of the node; its ranks share it
    std::uint64_t fifos = 0;    // the part of the board for messages
    std::uint64_t scratch = 0;  // of this rank alone
  };
  Memory memory() const;
  /// The time that the call is expected to take, from measured figures. Nothing runs meanwhile: the
  /// caller has entered, and no call is pending.
  Status estimate(const Call& call, double* ns);

  // ---- Errors
  /// The first error; OK while there is none. Any thread.
  Status error();
  void abort() noexcept;

  /// True if local peers can map [pointer, pointer + bytes) to access it without a copy.
  bool is_mapped(const void* pointer, std::size_t bytes) const;
  bool is_mapped(const Call& call) const;

  /// For tests.
  Session::Held held() const { return session_->held(); }

 private:
  friend class GroupCreation;
  // ---- As the engine's host
  std::string name_of_rank(int rank) const override;
  void ring(int local_rank) override;
  void poll_faults(FaultNews* news) override;
  void ask_for_late_ranks(std::uint64_t collective, const std::string& what_waits) override;
  bool export_region(std::uint64_t region) override;
  void on_failure(const Status& status, std::uint64_t operation, bool tell_peers) override;
  std::byte* private_scratch(std::size_t bytes) override;
  Status map_remote(int peer, RegionOffset offset, std::size_t bytes, std::uint64_t operation,
                    std::byte** out) override;

  Communicator(std::shared_ptr<Session> session, std::vector<int> members, std::uint64_t comm_id,
               const CommConfig& config, const CommContext& context);
  Status make(const CommContext& context);
  Status start_dumps();
  Status open_trace();
  void make_engine();
  std::uint8_t signature_flags() const {
    return config_.deterministic ? signature_flag::deterministic : 0;
  }
  Status agree(const std::optional<Figures>& known);
  std::optional<Figures> figures_for(const std::vector<int>& ranks, const CommConfig& config) const;
  void log_ready(const Figures& figures) const;
  void fail(const Status& status);
  Status fail_by_exception();
  Status drive_to_end();
  std::size_t least_scratch_bytes() const;
  std::unique_ptr<Selector> make_selector(const Figures& figures, LoadedPlans plans) const;
  Status verify_plan_files(LoadedPlans* out) const;
  void tell_abort() noexcept;
  void leave();

  std::shared_ptr<Session> session_;
  const CommConfig config_;
  SharedParts& shared_;
  const TransportFactory& factory_;
  ErrorCell& errors_;
  Membership membership_;
  CallOrder order_;
  HandoverQueue handovers_;
  CommLinks links_;
  Oversubscription oversubscription_;
  std::unique_ptr<TraceFile> trace_;  // null without HOCKET_TRACE
  std::unique_ptr<Engine> engine_;
  Figures figures_;
  std::unique_ptr<RecordDump> dump_;
  bool left_ = false;
};

}  // namespace hocket::internal
