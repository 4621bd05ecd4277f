// The part of a Session that runs on the event loop: the join, the failure detector, the data
// connections and the descriptors of one rank. It reads no clock and never blocks. A comment marks
// the functions that any thread may call.
#pragma once

#include <functional>
#include <memory>

#include "bootstrap/auth/acceptor.h"
#include "bootstrap/control/data_connections.h"
#include "bootstrap/control/failure_detector.h"
#include "bootstrap/control/fault_log.h"
#include "bootstrap/control/fd_exchange.h"
#include "bootstrap/join/node_leader.h"
#include "bootstrap/join/rank_join.h"
#include "bootstrap/net/event_loop.h"

namespace hocket::internal {

class SessionCore final : private EventLoop::Client {
 public:
  using JoinEnded = std::function<void(const Status& status)>;

  /// From any thread: checks the options and opens the listener. The loop must outlive the core.
  static Status make(const JoinOptions& options, EventLoop& loop,
                     std::shared_ptr<SessionCore>* out);
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;
  ~SessionCore() override { loop_.remove(this); }

  // ---- On the loop's thread
  /// Starts the join. `ended` is called once, when the join has ended, or at once.
  void start(JoinEnded ended) noexcept;
  /// Ends the join with Code::aborted, if it has not ended. The other ranks are told as soon as
  /// this rank has reached its leader or the coordinator, even after finish().
  void stop_join() noexcept;
  /// Leaves, and ends the requests for which local threads wait. The loop keeps the core as long as
  /// other ranks need this rank to forward their messages, or must be told that it aborted its
  /// join.
  static void finish(std::shared_ptr<SessionCore> core) noexcept;

  // ---- On the loop's thread, after the join
  void raise(const Fault& fault) { detector_->raise(fault); }
  void dial(int peer, std::uint64_t comm_id, int index);
  FdExchange& descriptors() { return descriptors_; }

  // ---- From any thread, after the join
  const std::vector<Member>& members() const { return detector_->members(); }
  int rank() const { return options_.rank; }
  FaultLog& faults() { return faults_; }
  DataConnections& data() { return data_; }

 private:
  SessionCore(const JoinOptions& options, EventLoop& loop);
  Status open_listener();
  void accept_tcp(const Credentials& credentials);
  void start_joining();
  void lead(const JoinSetup& setup, UniqueFd listener);
  JoinHandlers join_handlers();
  JoinRole* role() const;
  Status table_known(const Key& key);
  void joined(JoinResult joined);
  void end_join(const Status& status) noexcept;
  void return_to_user(const Status& status) noexcept;
  void drop_roles() noexcept;
  bool keep_telling_abort(const std::shared_ptr<SessionCore>& core) noexcept;
  bool fail(const Status& why) override;
  void process_exits() override;
  std::string cannot_go_on(const Status& why) const;
  void out_of_descriptors(const Status& why);
  void close() noexcept;
  void check_forwarding_in(std::int64_t ms) noexcept;

  JoinOptions options_;
  EventLoop& loop_;
  JoinRequest self_;
  UniqueFd listener_;
  FaultLog faults_;
  FdExchange descriptors_;
  DataConnections data_;
  std::unique_ptr<Acceptor> acceptor_;
  JoinEnded join_ended_;  // empty when the join has ended
  std::unique_ptr<RankJoin> rank_join_;
  std::unique_ptr<NodeLeader> node_leader_;  // instead of rank_join_, from the election on
  Timer drop_roles_;
  bool stopping_ = false;  // the user aborted the join; a role may still have to tell other ranks
  bool finished_ = false;  // the loop keeps the core until stopping_ has ended
  Timer stop_limit_;
  std::unique_ptr<FailureDetector> detector_;
  bool forwarding_ = false;  // finished, but other ranks need this one
  Timer forwarding_check_;
};

}  // namespace hocket::internal
