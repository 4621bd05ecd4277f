// What the join hands to the control plane.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bootstrap/control/heartbeat.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {

/// Children of a node leader in the tree of leaders: 64 nodes are two steps deep.
inline constexpr int tree_arity = 8;

/// What a rank has when all have joined.
struct JoinResult {
  Table table;
  int node = 0;
  bool leads = false;
  std::shared_ptr<ControlConnection> leader;  // to the node's leader, where that is another rank
  std::map<int, std::shared_ptr<ControlConnection>>
      locals;                                 // the leader's: to the others of the node, by rank
  std::shared_ptr<ControlConnection> parent;  // the leader's: to the one above
  std::map<int, std::shared_ptr<ControlConnection>>
      children;  // the leader's: to those below, by node
  std::unique_ptr<HeartbeatPage> page = std::make_unique<HeartbeatPage>();
  std::map<int, SharedFd> pidfds;  // of local peers in other processes, by rank
  std::vector<Fault> early;        // faults that came before this rank was done
};

}  // namespace hocket::internal
