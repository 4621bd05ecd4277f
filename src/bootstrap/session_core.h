// What lives behind a Session: one per session, on the monitor thread; the parts that any thread
// may touch are marked.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "bootstrap/auth/acceptor.h"
#include "bootstrap/control/data_connections.h"
#include "bootstrap/control/failure_detector.h"
#include "bootstrap/control/fault_log.h"
#include "bootstrap/control/fd_exchange.h"
#include "bootstrap/join/join_protocol.h"
#include "bootstrap/net/event_loop.h"

namespace hocket::internal {

class SessionCore : public std::enable_shared_from_this<SessionCore>, private EventLoop::Client {
 public:
  /// From the joining thread: checks the options and opens what must be open before the join.
  static Status make(const JoinOptions& options, std::shared_ptr<SessionCore>* out);
  ~SessionCore() override;
  /// From the joining thread: blocks until the join has ended.
  Status wait_joined();
  /// From any thread: the join ends soon with Code::aborted, if it has not ended before.
  void stop_join();

  // On the monitor thread:
  void start() noexcept;
  /// The session is gone: what remains carries others' messages, or nothing.
  void finish() noexcept;
  void leave();
  /// The process ends in order, and nobody has closed the session.
  void say_exit();

  // From any thread, after the join:
  const std::vector<Member>& members() const { return control_->members(); }
  int rank() const { return options_.rank; }
  FaultBoard& faults() { return faults_; }
  DataConnections& data() { return data_; }
  EventLoop& loop() const { return *lease_; }
  std::uint64_t generation() const { return generation_; }

  // On the monitor thread, after the join:
  FdExchange& descriptors() { return descriptors_; }
  void raise(const Fault& fault) { control_->raise(fault); }
  void dial(int peer, std::uint64_t comm_id, int index);

 private:
  SessionCore(const JoinOptions& options, EventLoopRef lease);
  Status open_listener();
  void accept_tcp(const Credentials& credentials);
  void start_joining();
  Status table_known(const Key& key);
  void joined(JoinResult joined);
  void end_join(const Status& status) noexcept;
  bool fail(const Status& why) override;
  void linger() noexcept;
  bool linger_soon(std::int64_t ms) noexcept;

  JoinOptions options_;
  EventLoopRef lease_;
  std::uint64_t generation_ = session_generation();
  JoinRequest self_;
  UniqueFd listener_;
  FaultBoard faults_;
  FdExchange descriptors_;
  DataConnections data_;
  std::unique_ptr<Acceptor> acceptor_;
  std::shared_ptr<JoinProtocol> joining_;
  std::unique_ptr<FailureDetector> control_;
  EventLoop::Token exit_task_ = 0;
  bool lingering_ = false;
  EventLoop::Token linger_timer_ = 0;

  std::mutex mutex_;
  std::condition_variable join_ended_;
  bool join_done_ = false;
  Status join_status_;
};

}  // namespace hocket::internal
