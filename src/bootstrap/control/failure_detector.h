// The control plane after the join: who is alive, and how a fault reaches everybody.
//
// A node's ranks form a star around their leader; leaders form a tree. Death: a pidfd per local
// peer, hang-up of control connections. Silence: beats in the node's pulse page, beat messages
// between leaders; both are counted in ticks of the watcher, so that a watcher that was suspended
// itself accuses nobody. A fault floods over star and tree and is dropped where it is known.
//
// A leader that leaves goes on to carry messages until nobody is left who could need it, or its
// process ends; after that the parts of the tree that it joined hear no longer of one another.
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
                  FaultBoard& faults, OnFault on_fault);
  ~FailureDetector();
  void start();

  /// Adds a fault to the board and, where it is new, tells everybody.
  void raise(const Fault& fault) { spread(fault, nullptr); }
  /// Tells everybody of a fault that is on the board already.
  void publish(const Fault& fault) { flood(fault, nullptr); }
  void leave();
  /// The process ends in order, but has not left.
  void say_exit();
  /// True while others may still need this rank to carry their messages.
  bool carries() const;

  const std::vector<Member>& members() const { return joined_.table.members; }

 private:
  struct Pulse {  // of a local peer
    int rank;
    std::uint64_t beats = 0;
    std::int64_t quiet_ticks = 0;
    EventLoop::Token pidfd_token = 0;
    EventLoop::Token end_timer = 0;
  };
  struct Link {  // to a neighbour in the tree
    std::shared_ptr<ControlConnection> conn;
    int node;
    Nanos heard = 0;
    std::int64_t quiet_ticks = 0;
  };
  void spread(const Fault& fault, const ControlConnection* from);
  void flood(const Fault& fault, const ControlConnection* from);
  void take_over(const std::shared_ptr<ControlConnection>& conn, std::function<void(int)> closed);
  void on_message(const ControlConnection* from, Message& message);
  bool is_heard(int rank) const;
  Fault given_up_by(std::size_t link, int rank) const;
  void mark_end(std::uint32_t how);
  void on_process_ended(Pulse& pulse);
  void on_peer_ended(int rank);
  void on_link_closed(std::size_t index, int error);
  void tick();
  void watch_pulses();
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
  FaultBoard& faults_;
  OnFault on_fault_;
  std::vector<std::unique_ptr<Pulse>> pulses_;  // by local rank; this rank's own stays empty
  std::vector<Link> links_;                     // [0]: above (none at the top), [1 + i]: child i
  EventLoop::Token timer_ = 0;
  bool left_ = false;
};

}  // namespace hocket::internal
