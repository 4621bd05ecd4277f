// How the ranks of a node wake one another: by a futex in the shared memory of the node (board.h),
// or by the eventfd of a rank that sleeps in poll. The eventfd of a peer is fetched when it is
// first needed. tests/transport/doorbell.pml models both; a model checker tries every
// interleaving.
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
  /// The session, the membership and the memory of the board outlive the doorbells.
  Doorbells(Session& session, const Membership& membership);
  ~Doorbells();
  Doorbells(const Doorbells&) = delete;
  Doorbells& operator=(const Doorbells&) = delete;

  /// Once, before any other call: makes this rank's eventfd and offers it to its local peers.
  Status open(const Board& board);
  /// Wakes a rank that sleeps. Never blocks. For this rank itself, any thread may call it.
  void ring(int local_rank);
  void wake() { ring(board_.local_rank()); }
  int event_fd() const { return event_fd_.get(); }

 private:
  bool fetch_event(int local_rank);

  struct PeerEvent {
    std::shared_ptr<Fetch> fetch;  // until the eventfd arrives
    UniqueFd fd;
  };
  Session& session_;
  const Membership& membership_;
  Board board_;
  UniqueFd event_fd_;
  std::vector<PeerEvent> peer_events_;  // by local rank
};

}  // namespace hocket::internal
