// A session: the ranks that joined one job, what they know of one another, and the control plane
// between them.
//
// JoinProtocol. All ranks know the job's id, its key and the root's address. The first rank of a
// host that binds the job's abstract Unix socket is the node's leader; the others of that host
// reach it there (that is what makes them local: never a host name) and the leaders reach the root
// over TCP. The root checks that ranks are distinct and sizes agree, and sends every leader its
// place in a tree of leaders; the table of members travels down that tree. Every connection, Unix
// or TCP, proves the key (mutual HMAC-SHA256 challenge) before anything else is parsed.
//
// Afterwards. One sleeping monitor thread per process serves all sessions: it beats and watches
// hearts, learns of deaths (pidfd on the node, hang-up and beats between leaders), floods faults to
// every member, accepts and dials authenticated data connections, and hands descriptors to local
// peers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/control/fetch.h"
#include "bootstrap/types.h"

namespace hocket::internal {

class Session {
 public:
  virtual ~Session() = default;

  /// Blocks until all ranks have joined, at most the join deadline; the error names the missing
  /// ranks. Code::aborted where options.stop ended it: the other ranks' joins then fail too.
  static Status join(const JoinOptions& options, std::shared_ptr<Session>* out);

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual const std::vector<Member>& members() const = 0;  // by rank
  bool local(int peer) const { return members()[peer].node == members()[rank()].node; }

  // ---- Faults
  /// Grows with every fault known here. Cheap: to be looked at while polling.
  virtual std::uint64_t fault_count() const = 0;
  virtual std::vector<Fault> faults() const = 0;  // in order of arrival
  /// Those that concern scope, from number *position on; *position becomes fault_count(). A rank's
  /// end does not concern a communicator that the rank had left.
  virtual std::vector<Fault> faults_since(const FaultScope& scope,
                                          std::uint64_t* position) const = 0;
  /// Faults of a comm_id are kept until it has been closed as often as opened. Where it is not open
  /// nothing is kept of ranks that leave it, and a limited number of its other faults.
  virtual void open(std::uint64_t comm_id) = 0;
  virtual void close(std::uint64_t comm_id) noexcept = 0;
  /// Tells all members (this one too): when it returns, the fault is on its way, and this process
  /// may end. A duplicate is dropped.
  virtual void report(const Fault& fault) = 0;
  /// Called by the monitor thread after each new fault: wake whoever sleeps. Returns a token for
  /// unwatch().
  virtual int watch(std::function<void()> wake) = 0;
  virtual void unwatch(int token) noexcept = 0;  // the callback is not running when it returns

  // ---- Descriptors for local peers
  /// The service sends duplicates of fd, until withdrawn. It keeps a duplicate of its own.
  virtual Status offer(DescriptorName name, int fd) = 0;
  virtual void withdraw(DescriptorName name) = 0;
  /// Blocks until the peer offers it, at most until deadline (monotonic). Earlier errors: any fault
  /// that concerns scope, but the leaving of others than the peer; the peer's service does not
  /// answer within the silence limit (at least 5 s) or closes; this session ends.
  virtual Status fetch(int peer, const FaultScope& scope, DescriptorName name, Nanos deadline,
                       UniqueFd* fd) = 0;
  /// The same without waiting. It has no deadline: whoever gives up calls forget().
  virtual Status post_fetch(int peer, const FaultScope& scope, DescriptorName name,
                            std::function<void(const Fetch&)> ended,
                            std::shared_ptr<Fetch>* fetch) = 0;
  /// Gives a fetch up; its `ended` is not called afterwards.
  virtual void forget(const std::shared_ptr<Fetch>& fetch) noexcept = 0;

  // ---- Data connections, to any peer
  /// adopt gets both sides' new connections of a comm_id; the monitor thread calls it. Connections
  /// that came before wait for it.
  virtual void listen(std::uint64_t comm_id, AdoptConnection adopt) = 0;
  /// The callback is not running when it returns.
  virtual void unlisten(std::uint64_t comm_id) noexcept = 0;
  /// Starts to open connection number `index` (0 to 65535) of `comm_id` to peer; both sides' adopt
  /// get an end. Either side may call it, or both: they agree on one connection. Calling twice is
  /// harmless; after an error it tries again.
  virtual void dial(int peer, std::uint64_t comm_id, int index) = 0;

  /// Says goodbye: what ends here from now on is not a death. Idempotent.
  virtual void leave() = 0;

  /// How many entries of each kind the session holds: for tests.
  struct Held {
    std::size_t faults = 0, closed_channels = 0, data = 0, offered = 0, wanted = 0, requests = 0;
  };
  virtual Held held() const = 0;
};

/// Keeps the faults of a comm_id while it lives; the session must outlive it.
class OpenChannel {
 public:
  OpenChannel(Session& session, std::uint64_t comm_id) : session_(session), comm_id_(comm_id) {
    session_.open(comm_id_);
  }
  ~OpenChannel() { session_.close(comm_id_); }
  OpenChannel(const OpenChannel&) = delete;
  OpenChannel& operator=(const OpenChannel&) = delete;

 private:
  Session& session_;
  std::uint64_t comm_id_;
};

/// Starts a root, which lives in this process until all have joined or the join has failed, and,
/// while the process has sessions, up to 60 s more to answer latecomers. With listener: adopts that
/// socket (hocket-run made it); else listens on `interface` (empty: the default route's, loopback
/// where there is none). Fills root. The deadline is the longest that it waits for the first rank;
/// each rank brings its own join deadline, and the earliest counts.
Status start_coordinator(const Key& key, const JobId& job_id, const std::string& interface,
                         UniqueFd listener, Address* root, std::int64_t deadline_ms);

/// For the launcher, when the process that was to be the root has ended: every rank that comes to
/// its listener, now or later, learns in its join that the culprit has ended, and how. Lasts until
/// this process ends.
Status refuse_joins(const Key& key, const JobId& job_id, UniqueFd listener, int culprit,
                    const std::string& text);

}  // namespace hocket::internal
