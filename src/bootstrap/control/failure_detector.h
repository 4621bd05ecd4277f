// The control plane after the join: finds out which ranks have ended or are silent, and tells every
// fault to all ranks.
//
// The ranks of a node are connected to their leader; the leaders form a tree. Death is found by a
// pidfd per local peer and by control connections that close. Silence is found by heartbeats: in
// the heartbeat page of the node, and in messages between leaders. Both count the ticks of this
// rank's own loop, so that a rank that was itself suspended does not report other ranks as silent.
// A fault is flooded over all control connections; a rank that knows it already does not forward
// it.
//
// A leader that has left continues to forward messages until no rank needs it, or until its process
// ends. After that, the parts of the tree that it connected get no faults of one another.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/control/fault_log.h"
#include "bootstrap/control/join_result.h"

namespace hocket::internal {

class FailureDetector {
 public:
  using OnFault = std::function<void(const Fault& fault)>;
  FailureDetector(EventLoop& loop, int rank, std::int64_t silence_ms, JoinResult joined,
                  FaultLog& faults, OnFault on_fault);
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;
  void start();

  /// Adds a fault to the fault log and tells all ranks, unless it is known already.
  void raise(const Fault& fault) { spread(fault, nullptr); }
  /// Tells all ranks of a fault that is in the fault log already.
  void publish(const Fault& fault) { flood(fault, nullptr); }
  void leave();
  /// Tells all ranks that the process ends in order, but has not left.
  void say_exit();
  /// True while this rank connects other ranks that have not ended.
  bool forwards() const;

  const std::vector<Member>& members() const { return joined_.table.members; }

 private:
  struct Heartbeat {  // of a local peer
    int rank;
    std::uint64_t count = 0;  // as last read in the heartbeat page
    std::int64_t quiet_ticks = 0;
    Watch process_ends;
    Timer end_timer;
  };
  struct Link {  // to a neighbour in the tree of leaders
    std::unique_ptr<ControlConnection> conn;
    int node = 0;
    Nanos heard = 0;
    std::int64_t quiet_ticks = 0;
  };
  void spread(const Fault& fault, const ControlConnection* from);
  void flood(const Fault& fault, const ControlConnection* from);
  void take_over(ControlConnection& conn, std::function<void(int)> closed);
  void on_message(const ControlConnection* from, Message& message);
  bool is_heard(int rank) const;
  Fault given_up_by(std::size_t link, int rank) const;
  void mark_end(std::uint32_t how);
  void on_process_ended(Heartbeat& heartbeat);
  void on_peer_ended(int rank);
  void on_link_closed(std::size_t index, int error);
  void tick();
  void watch_heartbeats();
  void watch_links();
  std::size_t link_towards(int node) const;
  std::vector<int> ranks_behind(std::size_t link) const;
  std::string who(int rank) const;
  bool leads() const { return joined_.leads; }
  int leader() const { return joined_.table.leaders[joined_.node]; }

  EventLoop& loop_;
  int rank_;
  std::int64_t tick_ms_;
  std::int64_t silent_ticks_;
  std::int64_t silence_ms_;
  JoinResult joined_;
  FaultLog& faults_;
  OnFault on_fault_;
  std::vector<std::unique_ptr<Heartbeat>> heartbeats_;  // by local rank; this rank's stays unused
  std::vector<Link> links_;  // [0]: parent (none at the top), [1 + i]: child i
  Timer tick_timer_;
  bool left_ = false;
};

}  // namespace hocket::internal
