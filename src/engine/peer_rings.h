// When the local peers that sleep are rung: some polls after a publication, or when the operation
// has ended.
#pragma once

#include <vector>

#include "engine/engine_host.h"
#include "transport/shm/board.h"

namespace hocket::internal {

class PeerRings {
 public:
  /// Both outlive it.
  PeerRings(const Board& board, EngineHost& host) : watch_(board), host_(host) {
    for (int rank = 0; rank < board.local_ranks(); ++rank) {
      if (rank != board.local_rank()) peers_.push_back({rank, &board.doorbell(rank)});
    }
  }

  /// published: whether this rank has published something to local peers since the last call.
  void add(bool published) { due_ |= published; }
  /// To be called at the end of each round. running: a collective is under way.
  void end_round(bool moved, bool running) {
    quiet_ = moved ? 0 : quiet_ + 1;
    if (due_ && (!running || quiet_ == quiet_polls_before_ring)) ring_pending();
  }
  /// See Engine::ring_pending().
  void ring_pending() {
    if (!due_) return;
    due_ = false;
    for (const Peer& peer : peers_) {
      if (Board::may_sleep(*peer.doorbell)) host_.ring(peer.rank);
    }
    watch_.published();
  }

 private:
  struct Peer {
    int rank;  // on the node
    const Doorbell* doorbell;
  };
  // Peers are rung only after so many polls that moved nothing: by then the line has left the store
  // buffer and the fence in ring() is cheap.
  static constexpr unsigned quiet_polls_before_ring = 16;
  SleepWatch watch_;
  EngineHost& host_;
  std::vector<Peer> peers_;
  bool due_ = false;
  unsigned quiet_ = 0;  // polls in a row that moved nothing
};

}  // namespace hocket::internal
