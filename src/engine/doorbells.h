// How the ranks of one node wake one another: a futex in the node's shared segment (board.h), or
// the eventfd of a rank that sleeps in poll. Peers' eventfds are asked for when first needed.
#pragma once

#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/session.h"
#include "engine/membership.h"
#include "transport/shm/board.h"

namespace hocket::internal {

class Doorbells {
 public:
  /// Both outlive it, and so does the board's memory.
  Doorbells(Session& session, const Membership& membership);
  ~Doorbells();
  Doorbells(const Doorbells&) = delete;
  Doorbells& operator=(const Doorbells&) = delete;

  /// Once, before any other call: makes this rank's eventfd and offers it to its local peers.
  Status open(const Board& board);
  /// Wakes a rank that sleeps. Never blocks. This rank itself: from any thread.
  void ring(int local_rank);
  void wake() { ring(board_.local_rank()); }
  int event_fd() const { return event_fd_.get(); }

 private:
  bool fetch_event(int local_rank);

  struct PeerEvent {
    std::shared_ptr<Fetch> fetch;  // while it is on its way
    UniqueFd fd;
  };
  Session& session_;
  const Membership& membership_;
  Board board_;
  UniqueFd event_fd_;
  std::vector<PeerEvent> peer_events_;  // by local rank
};

}  // namespace hocket::internal
