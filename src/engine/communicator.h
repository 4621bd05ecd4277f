// A communicator: some ranks of a session, the board and the transports between them, and the
// engine over both.
//
// Order. Calls on one communicator run in the order in which they were made, whatever streams they
// were given: each takes a ticket when it is made and runs when its ticket is served. One on the
// NULL stream with nothing pending runs at once, without a ticket. Tickets also hand the engine
// from thread to thread, so that one thread at a time uses it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "bootstrap/session.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "engine/wait.h"
#include "memory/shared_memory.h"
#include "transport/sequence_check.h"
#include "transport/shm/board.h"

namespace hocket::internal {

/// What hocketConfig_t and the environment say, worked out.
struct CommConfig {
  std::string name;
  std::int64_t deadline_ms = 600'000;
  std::int64_t join_deadline_ms = 600'000;
  std::int64_t silence_ms = 10'000;
  bool deterministic = false;
  bool blocking = true;
  bool checksum = false;
  bool use_shm = true;
  bool use_tcp = true;
  std::string interface;
  std::string algorithm;
};

/// Ranks of the job on this machine for each core that they may run on, whatever transport joins
/// them and whatever communicator they belong to: all of them may be at work at once.
double ranks_per_core(const Session& session);

class Communicator {
 public:
  /// Collective over the session: all ranks of `members` (session ranks, in communicator order)
  /// call it alike. parent: comm_id of the communicator that it is split from, open; 0: none. Its
  /// abort ends the making. stop ends it early with Code::aborted, on all ranks; may be null.
  static Status create(std::shared_ptr<Session> session, std::vector<int> members,
                       std::uint64_t comm_id, std::uint64_t parent, const CommConfig& config,
                       StopRequest* stop, std::unique_ptr<Communicator>* out);
  /// Flushes and leaves. Never blocks on a peer beyond the deadline.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(members_.size()); }
  int local_rank() const { return board_.local_rank(); }
  int local_ranks() const { return board_.local_ranks(); }
  int nodes() const { return nodes_; }
  const CommConfig& config() const { return config_; }
  /// Names of static storage; "none" before the first collective.
  const char* last_algorithm() const;
  const char* last_transport() const;

  using Ticket = std::uint64_t;
  /// Collective, a call with a ticket like any other; this communicator may go as soon as that is
  /// served. color < 0: *out stays empty. stop ends the making of the new communicator, not this
  /// one's part in it.
  Status split(Ticket ticket, int color, int key, const CommConfig& config, StopRequest* stop,
               std::unique_ptr<Communicator>* out);

  // ---- Running calls
  /// Takes the caller's side: false where another thread is inside a call of this communicator.
  bool enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void exit() { busy_.store(false, std::memory_order_release); }
  /// For Call::number, by the thread that has entered.
  std::uint64_t next_number() { return ++numbered_; }
  Ticket take_ticket() { return issued_.fetch_add(1, std::memory_order_relaxed); }
  void await_ticket(Ticket ticket);
  void serve_next();
  /// With the ticket served: ends everything with an error that arose here.
  void fail(const Status& status);
  bool pending() const {
    return issued_.load(std::memory_order_relaxed) != served_.load(std::memory_order_acquire);
  }
  /// Blocks until all calls made so far have run.
  void flush();
  /// Says goodbye to the other ranks: no call follows. Idempotent.
  void leave();

  /// With the ticket served (or nothing pending): runs calls to their end. The error is the
  /// communicator's.
  Status run(std::span<const Call> calls);
  /// One side of a run over several communicators (a group): queue, then drive all, then look at
  /// outcome().
  void submit(const Call& call) { engine_->submit(call); }
  /// The error that ended the calls; one that is known already but ended none comes with the next.
  const Status& outcome() const { return engine_->status(); }
  Sleeper sleeper() const { return {engine_.get(), &board_, event_fd_.get()}; }
  Oversubscription& oversubscription() { return oversubscription_; }

  // ---- Errors
  /// The first error; OK while there is none. Any thread.
  Status error();
  bool has_error() const { return has_error_.load(std::memory_order_acquire); }
  void abort() noexcept;

  /// True where local peers can read and write [pointer, pointer + bytes) in place.
  bool is_mapped(const void* pointer, std::size_t bytes) const;

  /// For tests.
  Session::Held held() const { return session_->held(); }

 private:
  struct Hello;
  Communicator(std::shared_ptr<Session> session, std::vector<int> members, std::uint64_t comm_id,
               const CommConfig& config);
  Status make(StopRequest* stop);
  Status open_board();
  Status open_transports();
  void make_engine();
  std::uint8_t signature_flags() const { return config_.deterministic ? 1 : 0; }
  Status agree();
  void log_ready(const struct Figures& figures) const;
  Status measure(Hello* hello);
  Status measure_barrier(double* ns);
  Status measure_board(struct Figures* figures);
  Status measure_push(Stores stores, double* ns_per_byte);
  Status measure_link(struct Figures* figures);
  Status time_messages(int far, int messages, std::size_t bytes, double* best);
  std::unique_ptr<Selector> make_selector(const struct Figures& figures) const;
  Status first_fault() const;
  void poll_faults(FaultNews* news);
  void add_gone(const Fault& fault, FaultNews* news) const;
  void tell_failure(const Status& status, std::uint64_t operation);
  void tell_part(std::uint64_t comm_id, const Status& status);
  void set_error(const Status& status);
  void tell_abort() noexcept;
  void ring(int local_rank);
  bool fetch_event(int local_rank);
  void wake();
  std::string name_of_rank(int rank) const;
  int rank_of_session(int session_rank) const;
  Status status_of(const Fault& fault) const;
  bool export_region(std::uint64_t region);
  Status fetch(int peer, DescriptorName name, Nanos deadline, UniqueFd* fd);
  Status fetch_region(int peer, std::uint64_t region, UniqueFd* fd);
  FaultScope fetch_scope() const;
  Status of_peer(int peer, const Status& status) const;
  Status map_remote(int peer, RegionOffset place, std::size_t bytes, std::byte** out);
  Status place_in(const Mapping& mapping, int peer, RegionOffset place, std::size_t bytes,
                  std::byte** out) const;
  std::byte* private_scratch(std::size_t bytes);

  std::shared_ptr<Session> session_;
  std::vector<int> members_;         // session rank by rank
  std::vector<int> local_members_;   // rank by local rank
  std::vector<int> rank_of_member_;  // rank by session rank; -1: not a member
  std::uint64_t comm_id_;
  OpenChannel open_channel_;
  FaultScope scope_;
  bool left_ = false;
  CommConfig config_;
  int rank_ = 0;
  int nodes_ = 1;
  std::uint64_t splits_ = 0;

  std::shared_ptr<Mapping> mapping_;
  Board board_;
  UniqueFd event_fd_;
  struct PeerEvent {
    std::shared_ptr<Fetch> fetch;  // while it is on its way
    UniqueFd fd;
  };
  std::vector<PeerEvent> peer_events_;  // by local rank; fetched when first needed
  CollectiveSequenceCheck sequence_check_;
  std::vector<std::unique_ptr<Transport>> transports_;
  Oversubscription oversubscription_;
  std::unique_ptr<Engine> engine_;
  int watch_ = -1;
  std::uint64_t faults_seen_ = 0;

  using PeerRegion = std::pair<int, std::uint64_t>;
  struct PeerMapping {
    std::shared_ptr<Mapping> mapping;
    std::uint64_t used_by = 0;  // sequence of the last collective that uses it
  };
  void drop_peer_regions();
  std::map<PeerRegion, PeerMapping> peer_regions_;
  std::map<PeerRegion, std::shared_ptr<Fetch>> region_fetches_;  // on their way
  std::set<std::uint64_t> awaiting_cts_;  // own regions that peers may ask for
  std::uint64_t offered_generation_ = 0;
  std::unique_ptr<std::byte, void (*)(void*)> scratch_{nullptr, std::free};
  std::size_t scratch_bytes_ = 0;

  std::atomic<bool> busy_{false};
  std::uint64_t numbered_ = 0;  // calls of the user
  std::atomic<std::uint64_t> issued_{0}, served_{0};

  mutable std::mutex error_mutex_;
  Status error_;
  std::atomic<bool> has_error_{false};
  std::atomic<bool> aborted_{false};
};

}  // namespace hocket::internal
