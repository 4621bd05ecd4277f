// A communicator: some ranks of a session, the board and the transports between them, and the
// engine over both.
#pragma once

#include <cstdint>
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
#include "engine/engine.h"
#include "engine/error_cell.h"
#include "engine/handover.h"
#include "engine/membership.h"
#include "engine/node_segment.h"
#include "engine/peer_memory.h"
#include "engine/record_dump.h"
#include "engine/shared_parts.h"
#include "engine/trace_file.h"
#include "engine/transport_factory.h"
#include "engine/wait.h"
#include "memory/scratch_area.h"

namespace hocket::internal {

/// What a new communicator uses of its surroundings. All of it outlives the communicator, but
/// `stop` only its making.
struct CommContext {
  SharedParts& shared;  // of the process
  ErrorCell& errors;    // of this communicator
  /// Ends the making early with Code::aborted, on all ranks; may be null.
  StopRequest* stop = nullptr;
  /// Makes the transports, also for the communicators that are split off.
  const TransportFactory& factory = default_transports();
  /// Communicator::figures_for() of the parent. Nothing: the ranks measure them.
  std::optional<Figures> figures = {};
};

class Communicator final : private EngineHost {
 public:
  /// Collective over the session: all ranks of `members` (session ranks, in communicator order)
  /// call it alike. parent: comm_id of the communicator that it is split from, open; 0: none. Its
  /// abort ends the making.
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
  /// Names of static storage; "none" before the first collective.
  const char* last_algorithm() const;
  const char* last_transport() const;

  /// Colors of a split: the rank gets no communicator; all ranks together, in their order.
  static constexpr int no_color = -1, duplicate = -2;
  /// Collective; a call with a ticket like any other. This communicator may be destroyed as soon as
  /// the ticket is served. no_color: *out stays empty. errors, stop: of the new communicator; stop
  /// ends the making of the new communicator, but not the call on this one.
  Status split(CallOrder::Ticket ticket, int color, int key, const CommConfig& config,
               ErrorCell& errors, StopRequest* stop, std::unique_ptr<Communicator>* out);

  /// Collective; not while calls are pending on streams of other threads. Reads, verifies and adds
  /// a plan. Either all ranks have it afterwards, or none; an error does not end this communicator.
  /// forced: it carries every call that it serves.
  Status load_plan(std::string_view json, bool forced);

  // ---- Running calls
  CallOrder& order() { return order_; }
  SharedParts& shared() const { return shared_; }
  /// Waits for all calls and for all ranks, then says goodbye to them: no call follows.
  Status finalize();

  /// While no call is pending: runs calls to their end. Returns the error that ended the calls. An
  /// error that is known but ended none of them is not returned before the next call.
  Status run(std::span<const Call> calls);
  HandoverQueue& handovers() { return handovers_; }
  /// Of the thread that drives the engine: submits calls. error: instead of the calls, ends
  /// everything.
  void submit(std::span<const Call> calls, const Status& error, Work* work);
  /// Any thread: wakes the thread that drives the engine.
  void wake_driver() { node_.doorbells().wake(); }
  Sleeper sleeper() const { return {engine_.get(), &board(), node_.doorbells().event_fd()}; }
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

  /// True where local peers can map [pointer, pointer + bytes), to access it without a copy.
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
  std::size_t least_scratch_bytes() const;
  std::unique_ptr<Selector> make_selector(const Figures& figures, LoadedPlans plans) const;
  Status verify_plan_files(LoadedPlans* out) const;
  void tell_abort() noexcept;
  void leave();
  const Board& board() const { return node_.board(); }

  std::shared_ptr<Session> session_;
  const CommConfig config_;
  SharedParts& shared_;
  const TransportFactory& factory_;
  ErrorCell& errors_;
  Membership membership_;
  CallOrder order_;
  HandoverQueue handovers_;
  NodeSegment node_;
  PeerMemory memory_;
  ScratchArea scratch_;
  std::vector<std::unique_ptr<Transport>> transports_;
  Oversubscription oversubscription_;
  std::unique_ptr<TraceFile> trace_;  // null without HOCKET_TRACE
  std::unique_ptr<Engine> engine_;
  Figures figures_;
  std::unique_ptr<RecordDump> dump_;
  bool left_ = false;
};

}  // namespace hocket::internal
