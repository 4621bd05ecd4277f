// Makes the transports between the ranks of a communicator.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/session.h"
#include "engine/comm_config.h"
#include "engine/doorbells.h"
#include "engine/membership.h"
#include "engine/peer_memory.h"
#include "transport/shm/board.h"
#include "transport/transport.h"

namespace hocket::internal {

/// What transports are made from. All of it outlives the transports.
struct TransportOptions {
  Session& session;
  const Membership& membership;
  const CommConfig& config;
  const Board& board;
  Doorbells& doorbells;
  PeerMemory& memory;
};

class TransportFactory {
 public:
  /// Adds the transports of one communicator to *out, also those that were made before an error. A
  /// message goes over the first transport that reaches its peer.
  virtual Status make(const TransportOptions& options,
                      std::vector<std::unique_ptr<Transport>>* out) const = 0;

 protected:
  ~TransportFactory() = default;
};

/// Copies messages of a rank to itself, uses the fifos of the board within a node, and TCP
/// connections of the session between nodes. After the transports are closed, their owner must call
/// Session::unlisten().
const TransportFactory& default_transports();

}  // namespace hocket::internal
