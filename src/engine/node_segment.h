// The memory that the ranks of a node share for one communicator: its mapping, the board in it, and
// the doorbells.
#pragma once

#include <cstdint>
#include <memory>

#include "bootstrap/session.h"
#include "engine/doorbells.h"
#include "engine/membership.h"
#include "memory/shared_memory.h"
#include "transport/shm/board.h"

namespace hocket::internal {

class NodeSegment {
 public:
  /// The three arguments outlive it.
  NodeSegment(Session& session, const Membership& membership, Mappings& mappings)
      : session_(session),
        membership_(membership),
        mappings_(mappings),
        doorbells_(session, membership) {}

  /// All ranks of the node call it once, before any other call: local rank 0 makes the memory, the
  /// other local ranks wait for it for at most deadline_ms.
  Status open(std::int64_t deadline_ms);
  const Board& board() const { return board_; }
  Doorbells& doorbells() { return doorbells_; }
  const Doorbells& doorbells() const { return doorbells_; }

 private:
  Session& session_;
  const Membership& membership_;
  Mappings& mappings_;
  std::shared_ptr<Mapping> mapping_;
  Board board_;
  Doorbells doorbells_;
};

}  // namespace hocket::internal
