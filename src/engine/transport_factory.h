// Which transports join the ranks of a communicator.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/session.h"
#include "engine/comm_config.h"
#include "engine/doorbells.h"
#include "engine/membership.h"
#include "transport/shm/board.h"
#include "transport/transport.h"

namespace hocket::internal {

/// What transports are made from. All of it outlives them.
struct TransportOptions {
  Session& session;
  const Membership& membership;
  const CommConfig& config;
  const Board& board;
  Doorbells& doorbells;
};

class TransportFactory {
 public:
  /// Adds the transports of one communicator to *out, also those that were made before an error. A
  /// message goes over the first that reaches its peer.
  virtual Status make(const TransportOptions& options,
                      std::vector<std::unique_ptr<Transport>>* out) const = 0;

 protected:
  ~TransportFactory() = default;
};

/// Messages of a rank to itself are copied; the board carries those within a node, TCP connections
/// of the session those between nodes. The owner of the transports ends with Session::unlisten()
/// what they listen to.
const TransportFactory& default_transports();

}  // namespace hocket::internal
