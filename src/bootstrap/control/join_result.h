// The data that the join gives to the failure detector.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bootstrap/control/heartbeat.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {

/// The most children of a node leader in the tree of leaders. With 64 nodes, a leader is at most
/// two steps from the top.
inline constexpr int tree_arity = 8;

/// What a rank has when all ranks have joined. Only a node leader has followers, a parent and
/// children.
struct JoinResult {
  Table table;
  int node = 0;
  bool leads = false;
  std::unique_ptr<ControlConnection> leader;  // to the node's leader, if that is another rank
  std::map<int, std::unique_ptr<ControlConnection>> followers;  // the node's other ranks, by rank
  std::unique_ptr<ControlConnection> parent;                    // the leader above in the tree
  std::map<int, std::unique_ptr<ControlConnection>> children;   // the leaders below, by node
  std::unique_ptr<HeartbeatPage> page = std::make_unique<HeartbeatPage>();
  std::map<int, SharedFd> pidfds;  // of local peers in other processes, by rank
  std::vector<Fault> early;        // faults that came before this rank's join ended
};

}  // namespace hocket::internal
