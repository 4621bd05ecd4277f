// How far a rank may be ahead of its local peers, and how ranks that make different calls find out.
//
// The rule. Before a rank begins collective c, it has seen that every local peer has begun
// collective c - 127 or later. A rank begins a collective when it has ended the previous one. So
// every peer has ended collective c - 128, whose record and arrival line the rank overwrites. There
// are fewer of most scratches: before a rank writes to one of n scratches in operation s of the
// board, every peer has begun operation s - (n - 1), and so has ended s - n. No rank reads the
// memory of that operation any more, whatever plans the two operations have: a plan reads the
// memory of peers only between its beginning and its end, and only that of its own operation.
//
// A rank that has awaited the arrival of all peers, as every all-reduce on the board does, knows
// that all have come so far, and reads nothing. Otherwise it reads one word of each peer, which
// says which collective the peer has begun last; a word that allows one collective mostly allows
// several.
//
// Different calls. The fingerprint of a collective covers its call and all collectives before it,
// whether they use the board or not. A rank that reads the word of a peer also compares the
// fingerprint of the last collective that both have begun. So it finds a difference before either
// of the two ranks can overwrite its record of the first collective that differs, and the error
// quotes both calls.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "transport/shm/board.h"

namespace hocket::internal {

/// The state of this rule on one rank of a communicator. Collectives have their numbers among all
/// collectives of the communicator, operations those among its collectives that use the board, both
/// from 1 on.
class RunAhead {
 public:
  /// rank, ranks_of_node: the ranks in the communicator, for errors. The board and the list outlive
  /// this object.
  RunAhead(const Board& board, int rank, const std::vector<int>& ranks_of_node)
      : board_(board),
        rank_(rank),
        ranks_of_node_(ranks_of_node),
        progress_(board.progress(board.local_rank())),
        calls_(&board.call(board.local_rank(), 0)) {}

  /// The collective that all peers must have begun before this rank begins `collective`; 0: none.
  static constexpr std::uint64_t required_by(std::uint64_t collective) {
    return collective >= run_ahead_operations ? collective - (run_ahead_operations - 1) : 0;
  }
  /// The same if the collective is that operation of the board, for which begin_operation() was
  /// called, and writes to a scratch of that size.
  std::uint64_t required_by(std::uint64_t collective, std::uint64_t operation,
                            ScratchSize scratch) const {
    const std::uint64_t ahead = Board::scratches(scratch) - 1;
    const std::uint64_t required = required_by(collective);
    if (operation <= ahead) return required;
    return std::max(required, collectives_[(operation - ahead) % collectives_.size()]);
  }

  /// True if all local peers are known to have begun that collective.
  bool all_have_begun(std::uint64_t collective) const { return all_at_ >= collective; }
  /// To be called when all local peers were seen to have begun that collective, with the same
  /// fingerprint.
  void saw_all(std::uint64_t collective) { all_at_ = collective; }

  enum class Look : std::uint8_t { waits, all_have_begun, disagrees };
  /// Reads the words of the peers until it finds a peer that has not begun that collective, or that
  /// makes other calls. As long as not all have begun it, the next look begins with that peer. This
  /// rank itself has begun the collective.
  Look look(std::uint64_t collective);
  /// The local peer at which the last look ended.
  int looked_at() const { return peer_; }

  /// The collective is that operation of the board.
  void begin_operation(std::uint64_t operation, std::uint64_t collective) {
    collectives_[operation % collectives_.size()] = collective;
  }
  /// To be called when required_by() allows the collective, before anything says to peers that this
  /// rank has begun it.
  void record(std::uint64_t collective, std::uint64_t fingerprint, const Signature& call) {
    fingerprints_[collective % fingerprints_.size()] = fingerprint;
    CallRecord& record = calls_[collective % run_ahead_operations];
    // A peer that reads a new fingerprint also reads that this rank had begun the collective
    // before.
    record.fingerprint.store(fingerprint, std::memory_order_release);
    record.collective.store(collective, std::memory_order_relaxed);
    copy_by_words(record.signature, call);
  }
  /// After record(): tells the peers.
  void begin(std::uint64_t collective) {
    progress_.begun.store(collective, std::memory_order_release);
    begun_ = collective;
  }

  /// The error for a local peer with another fingerprint than this rank. It names the first
  /// collective that differs. If none does, a process has overwritten what the peer wrote.
  Status disagreement_with(int peer) const;
  /// The same for the peer at which the last look ended.
  Status disagreement() const { return disagreement_with(peer_); }

 private:
  /// The number of the call was stored just now: a load of more than that word would wait until
  /// that store and all before it have reached the cache. The fence keeps the compiler from joining
  /// words.
  static void copy_by_words(Signature& to, const Signature& from) {
    constexpr std::size_t word = sizeof from.sequence;
    static_assert(sizeof(Signature) % word == 0);
#pragma GCC unroll 8
    for (std::size_t at = 0; at < sizeof(Signature); at += word) {
      std::memcpy(reinterpret_cast<std::byte*>(&to) + at,
                  reinterpret_cast<const std::byte*>(&from) + at, word);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

  const Board& board_;
  const int rank_;
  const std::vector<int>& ranks_of_node_;
  Progress& progress_;       // of this rank
  CallRecord* const calls_;  // likewise
  std::uint64_t begun_ = 0;  // by this rank
  std::uint64_t all_at_ = 0;
  std::array<std::uint64_t, run_ahead_operations> fingerprints_{};  // what peers are compared with
  std::array<std::uint64_t, run_ahead_operations> collectives_{};   // by operation
  // The state of a look that has not found that all peers have begun the collective:
  int peer_ = 0;
  std::uint64_t least_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace hocket::internal
