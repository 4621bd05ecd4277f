// How far a rank may be ahead of its local peers, and how ranks that make different calls find out.
//
// The rule. Before a rank writes anything of operation s to the board, it has seen that every
// local peer has arrived at operation s - 127 or later. A rank arrives at an operation when it
// has ended the previous one. So every peer has ended operation s - 128, whose arrival line and
// signature the rank overwrites. There are fewer of most scratches: before a rank writes to one
// of n scratches, every peer has arrived at s - (n - 1), and so has ended s - n. No rank reads
// the memory of that operation any more, whatever plans the two operations have: a plan reads
// the memory of peers only between its beginning and its end, and only that of its own
// operation.
//
// A rank that has awaited the arrival of all peers, as every all-reduce does, knows that all have
// come so far, and reads nothing. Otherwise it reads one word of each peer, which says at which
// operation the peer has arrived; a word that allows one operation mostly allows several.
//
// Different calls. The fingerprint of an operation covers its call and all operations of the board
// before it. A rank that reads the word of a peer also compares half of the fingerprint of the last
// operation at which both have arrived. So it finds a difference before either of the two ranks can
// overwrite the line of the first operation that differs, and the error quotes both calls.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "transport/shm/board.h"

namespace hocket::internal {

/// The state of this rule on one rank of a communicator. Operations are those of the board, from 1
/// on.
class RunAhead {
 public:
  /// rank, ranks_of_node: the ranks in the communicator, for errors. The board and the list outlive
  /// this object.
  RunAhead(const Board& board, int rank, const std::vector<int>& ranks_of_node)
      : board_(board), rank_(rank), ranks_of_node_(ranks_of_node) {}

  /// The operation at which all peers must have arrived before `operation` begins; 0: none. The
  /// operation before it is the latest whose memory `operation` may overwrite. scratch: that
  /// of the operation.
  static constexpr std::uint64_t required_by(std::uint64_t operation, ScratchSize scratch) {
    const std::uint64_t ahead = Board::scratches(scratch) - 1;
    return operation > ahead ? operation - ahead : 0;
  }

  /// True if all local peers are known to have arrived at that operation.
  bool all_have_arrived(std::uint64_t operation) const { return all_at_ >= operation; }
  /// To be called when all local peers were seen to have arrived at that operation.
  void saw_all(std::uint64_t operation) { all_at_ = operation; }

  enum class Look : std::uint8_t { waits, all_have_arrived, disagrees };
  /// Reads the words of the peers until it finds a peer that has not arrived at `operation`, or
  /// that makes other calls. As long as not all have arrived, the next look begins with that peer.
  /// This rank itself has arrived at `operation`.
  Look look(std::uint64_t operation);
  /// The local peer at which the last look ended.
  int looked_at() const { return peer_; }

  /// To be called when this rank begins an operation. collective: its number among all collectives.
  void begin(std::uint64_t operation, std::uint64_t collective) {
    collectives_[operation % collectives_.size()] = collective;
  }
  void arrive(std::uint64_t operation, std::uint64_t fingerprint) {
    Progress& progress = board_.progress(board_.local_rank());
    const std::uint32_t half = half_of(fingerprint);
    mine_[operation % mine_.size()] = half;
    progress.fingerprint(operation).store(half, std::memory_order_relaxed);
    progress.arrived.store(operation, std::memory_order_release);
    arrived_ = operation;
  }
  std::uint64_t arrived() const { return arrived_; }
  /// The number among all collectives of one of the last Progress::kept operations that have begun
  /// on this rank.
  std::uint64_t collective(std::uint64_t operation) const {
    return collectives_[operation % collectives_.size()];
  }

  /// The error for a peer whose fingerprint of `operation` differs. It names the first operation
  /// that differs. mine: the call of this rank in `operation`.
  Status disagreement_with(int peer, std::uint64_t operation, const Signature& mine) const;
  /// The same for the peer at which the last look ended.
  Status disagreement() const {
    return disagreement_with(peer_, arrived_, board_.signature(board_.local_rank(), arrived_));
  }

 private:
  static constexpr std::uint32_t half_of(std::uint64_t fingerprint) {
    return static_cast<std::uint32_t>(fingerprint);
  }

  /// Whether the peer, which has arrived at that operation, made the same calls up to it.
  bool agrees(int peer, std::uint64_t operation) const {
    return board_.progress(peer).fingerprint(operation).load(std::memory_order_relaxed) ==
           mine_[operation % mine_.size()];
  }

  const Board& board_;
  const int rank_;
  const std::vector<int>& ranks_of_node_;
  std::uint64_t arrived_ = 0;  // of this rank
  std::uint64_t all_at_ = 0;
  std::array<std::uint32_t, Progress::kept> mine_{};  // what peers are compared with
  std::array<std::uint64_t, Progress::kept> collectives_{};
  // The state of a look that has not found all peers arrived yet:
  int peer_ = 0;
  std::uint64_t least_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace hocket::internal
