// A session: the ranks that have joined one job, what they know of one another, and the control
// plane between them.
//
// Joining. All ranks know the job's id, its key and the coordinator's address. The first rank of a
// host that binds the job's abstract Unix socket is the node's leader; the other ranks of that host
// connect to it there, and that makes them local: host names play no part. The leaders connect to
// the coordinator over TCP. The coordinator checks that ranks are distinct and agree on their
// number, and gives every leader its place in a tree of leaders; the table of members travels down
// that tree. Every connection, Unix or TCP, proves the key (mutual HMAC-SHA256 challenge) before
// anything else is parsed.
//
// Afterwards. One monitor thread per process serves all sessions: it sends and watches heartbeats,
// learns of deaths (pidfds on the node, closed connections and heartbeats between leaders), tells
// faults to all members, accepts and dials authenticated data connections, and hands descriptors to
// local peers.
//
// Folders. Most parts are state machines on an EventLoop, which a test runs with a clock of its own
// (tests/bootstrap/join_seams_test.cc).
//
//   net/        the choice of an address, sockets, the event loop, the monitor thread
//   auth/       the handshake of a connection, and TLS
//   control/    what follows the join: failure detector, faults, data connections, descriptors for
//               local peers
//   join/       the coordinator, the two roles of a joining rank (NodeLeader, and RankJoin for its
//               followers), and the launch record, which hocket-run gives to a rank
//   launchers/  learns the coordinator's address and the key from other launchers
//
// Other modules use this header. Only those that join a job (engine/job.h, src/api) use join/ and
// launchers/ too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/control/fetch.h"
#include "bootstrap/net/monitor_thread.h"
#include "bootstrap/types.h"

namespace hocket::internal {

class SessionCore;

class Session {
 public:
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Tells all members that this rank leaves, so that they do not report its end as a fault.
  ~Session();

  /// Blocks until all ranks have joined, at most the join deadline; the error names the missing
  /// ranks. Code::aborted if options.stop ended it; then the joins of the other ranks fail too.
  static Status join(const JoinOptions& options, std::shared_ptr<Session>* out);

  int rank() const;
  int ranks() const;
  const std::vector<Member>& members() const;  // by rank
  bool local(int peer) const { return members()[peer].node == members()[rank()].node; }

  // ---- Faults
  /// Grows with every fault that is known here. Cheap enough for a polling loop.
  std::uint64_t fault_count() const;
  std::vector<Fault> faults() const;  // in order of arrival
  /// The faults that concern scope, from number *position on; *position becomes fault_count(). A
  /// rank's end does not concern a communicator that the rank had left.
  std::vector<Fault> faults_since(const FaultScope& scope, std::uint64_t* position) const;
  /// The faults of a comm_id are kept until it has been closed as often as opened. While it is not
  /// open, faults of kind `left` are not kept, and the number of its other faults is limited.
  void open(std::uint64_t comm_id);
  void close(std::uint64_t comm_id) noexcept;
  /// Tells the fault to all members, including this rank. When it returns, the fault has been sent,
  /// and this process may end. A known fault is not sent again.
  void report(const Fault& fault);
  /// The monitor thread calls `wake` after each new fault; it should wake the threads that sleep.
  /// Returns a token for unwatch().
  int watch(std::function<void()> wake);
  void unwatch(int token) noexcept;  // when it returns, the callback is not running

  // ---- Descriptors for local peers
  /// Local peers may fetch duplicates of fd until it is withdrawn. Keeps a duplicate of its own.
  Status offer(DescriptorName name, int fd);
  void withdraw(DescriptorName name);
  /// Blocks until the peer offers the descriptor, at most until deadline (monotonic). Returns an
  /// error earlier if a fault concerns scope (but not if a rank other than the peer has left), if
  /// the peer does not answer within the silence limit (at least 5 s) or closes its connection, or
  /// if this session ends.
  Status fetch(int peer, const FaultScope& scope, DescriptorName name, Nanos deadline,
               UniqueFd* fd);
  /// Does the same without blocking and without a deadline. A caller that no longer waits for the
  /// descriptor calls forget().
  Status post_fetch(int peer, const FaultScope& scope, DescriptorName name,
                    std::function<void(const Fetch&)> ended, std::shared_ptr<Fetch>* fetch);
  /// Ends a fetch; its `ended` is not called afterwards.
  void forget(const std::shared_ptr<Fetch>& fetch) noexcept;

  // ---- Data connections, to any peer
  /// The monitor thread calls adopt for each new connection of comm_id, whichever side opened it.
  /// Connections that were opened before this call wait for it.
  void listen(std::uint64_t comm_id, AdoptConnection adopt);
  /// Ends listen(). When it returns, the callback is not running.
  void unlisten(std::uint64_t comm_id) noexcept;
  /// Starts to open connection number `index` (0 to 65535) of `comm_id` to peer; the adopt callback
  /// of each side receives its end. Either side may call dial(), or both: they agree on one
  /// connection. A second call is harmless; after an error it tries again.
  void dial(int peer, std::uint64_t comm_id, int index);

  /// How many entries of each kind the session holds: for tests.
  struct Held {
    std::size_t faults = 0, closed_comm_ids = 0, data = 0, offered = 0, wanted = 0, requests = 0;
  };
  Held held() const;

 private:
  Session(std::shared_ptr<SessionCore> core, MonitorRef monitor);
  template <typename Function>
  void post(Function function);
  template <typename Function>
  void post_or_run(Function function) noexcept;
  bool inherited() const;
  static Status forked();

  MonitorRef monitor_;
  std::uint64_t generation_ = session_generation();
  std::shared_ptr<SessionCore> core_;  // used and destroyed on the monitor thread
};

/// Keeps a comm_id open in its lifetime; the session must outlive it.
class OpenCommId {
 public:
  OpenCommId(Session& session, std::uint64_t comm_id) : session_(session), comm_id_(comm_id) {
    session_.open(comm_id_);
  }
  ~OpenCommId() { session_.close(comm_id_); }
  OpenCommId(const OpenCommId&) = delete;
  OpenCommId& operator=(const OpenCommId&) = delete;

 private:
  Session& session_;
  std::uint64_t comm_id_;
};

/// Starts a coordinator in this process. It ends when all ranks have joined or the join has failed.
/// Then, while the process has sessions, it stays for 60 s more to answer ranks that come late. It
/// uses the socket `listener` (which hocket-run made), if there is one; otherwise it
/// listens on `interface` (empty: that of the default route, loopback if there is none). Fills in
/// the address. deadline_ms is the longest time that it waits for the first rank; each rank brings
/// its own join deadline, and the earliest counts. until_all_know is destroyed when all ranks have
/// joined, or know why the join has failed. After a failed join the exit of the process waits for
/// the ranks that do not know it yet, at most 2 s.
Status start_coordinator(const Key& key, const JobId& job_id, const std::string& interface,
                         UniqueFd listener, Address* address, std::int64_t deadline_ms,
                         std::shared_ptr<void> until_all_know = nullptr);

/// For the launcher, if another rank than rank 0 has ended: ranks that join, now or later, learn
/// that the culprit has ended, and how, from the coordinator in the process of rank 0. If all ranks
/// have joined, nothing happens. Lasts until this process ends.
Status report_end(const Key& key, const JobId& job_id, const Address& coordinator, int culprit,
                  const std::string& text);

/// For the launcher, if rank 0, the coordinator's process, has ended: every rank that connects to
/// its listener, now or later, learns in its join that the culprit has ended, and how. Lasts until
/// this process ends.
Status refuse_joins(const Key& key, const JobId& job_id, UniqueFd listener, int culprit,
                    const std::string& text);

}  // namespace hocket::internal
