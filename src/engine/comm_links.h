// All that is between the ranks of a communicator, and that its programs use: the board of the
// node, the memory of local peers, the scratch of this rank and the transports. Links
// (collectives/execute/executor.h) refers to these parts, and CommLinks owns them: NodeSegment has
// the board and the doorbells, PeerMemory the regions that local peers map.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/session.h"
#include "collectives/execute/executor.h"
#include "engine/comm_config.h"
#include "engine/doorbells.h"
#include "engine/membership.h"
#include "engine/node_segment.h"
#include "engine/peer_memory.h"
#include "engine/shared_parts.h"
#include "engine/transport_factory.h"
#include "memory/scratch_area.h"
#include "transport/shm/board.h"
#include "transport/transport.h"

namespace hocket::internal {

class CommLinks {
 public:
  /// The three arguments outlive it.
  CommLinks(Session& session, const Membership& membership, SharedParts& shared)
      : session_(session),
        membership_(membership),
        regions_(shared.regions),
        node_(session, membership, shared.mappings),
        memory_(session, membership, node_.doorbells(), shared) {}

  /// Called once, before any other call but close(). Waits for the local ranks for at most
  /// join_deadline_ms of the config, which outlives this object.
  Status open(const CommConfig& config, const TransportFactory& factory);
  /// All but the parts that belong to an engine. A message goes over the first transport that
  /// reaches its peer.
  Links links() const;
  std::vector<Transport*> transports() const;

  const Board& board() const { return node_.board(); }
  Doorbells& doorbells() { return node_.doorbells(); }
  const Doorbells& doorbells() const { return node_.doorbells(); }
  PeerMemory& memory() { return memory_; }
  ScratchArea& scratch() { return scratch_; }
  const ScratchArea& scratch() const { return scratch_; }

  /// Ends all transfers with an error.
  void cancel(const Status& why);
  /// Says goodbye to the peers. No operation follows.
  void close();

 private:
  Session& session_;
  const Membership& membership_;
  Regions& regions_;
  NodeSegment node_;
  PeerMemory memory_;
  ScratchArea scratch_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

}  // namespace hocket::internal
