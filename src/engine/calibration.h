// The agreement of the ranks when a communicator is made. Rank 0 measures the machine and sends its
// figures and settings to all ranks, so that all choose the same algorithms. A rank whose own
// settings would make it choose differently gets an error here, and does not hang later.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/select/selector.h"
#include "engine/call.h"
#include "engine/comm_config.h"
#include "engine/membership.h"
#include "transport/shm/board.h"
#include "transport/transport.h"

namespace hocket::internal {

/// The measured times of small messages, in nanoseconds.
struct MessageTimes {
  int neighbours = 1;      // of each rank in the exchange
  double exchange_ns = 0;  // each rank sends to so many ranks, and receives from as many
  double tree_ns = 0;      // with a core for each rank: an all-reduce by `tree`
  // If ranks share cores: an all-reduce by `recursive-doubling`, and a message between two ranks
  // while the others do nothing.
  double doubling_ns = 0;
  double pair_ns = 0;
};

/// Sets the figures of small messages so that the prices that the simulation computes are the
/// measured times. layout: that of all ranks. With a core for each rank it uses the times of the
/// exchange (for which it takes the price of `one-shot`) and of the tree, and sets the turn of a
/// core to 0; otherwise it uses the times of a pair and of recursive doubling. No other figure
/// becomes 0 or less, whatever the noise in the times.
void set_message_costs(const Layout& layout, const MessageTimes& times, Figures* figures);

class Calibration {
 public:
  /// Runs calls on the communicator to their end; all ranks run the same calls. algorithm: runs for
  /// collectives that have it; empty: the selector chooses.
  using Run = std::function<Status(std::span<const Call> calls, const char* algorithm)>;

  /// PeerMemory::read.
  using Read = std::function<std::ptrdiff_t(int peer, std::uint64_t address, std::size_t bytes,
                                            std::byte* to)>;

  /// All arguments but `run` and `read` outlive the calibration.
  Calibration(const Session& session, const Membership& membership, const Board& board,
              const CommConfig& config, const LoadedPlans& plans,
              std::vector<Transport*> transports, Run run, Read read)
      : membership_(membership),
        board_(board),
        config_(config),
        plans_(plans),
        transports_(std::move(transports)),
        run_(std::move(run)),
        read_(std::move(read)),
        ranks_per_core_(ranks_per_core(session, membership.member(0))) {}

  /// Collective, while the communicator runs nothing else. *figures receives the figures of rank 0,
  /// which are measured if they are not known. Code::mismatch if the settings of this rank differ
  /// from those of rank 0.
  Status agree(Figures* figures, bool known = false);

 private:
  struct FiguresAndSettings;
  Status run(std::span<const Call> calls, const char* algorithm = "") {
    return run_(calls, algorithm);
  }
  Status tell(const Call& call);
  Status measure(Figures* figures);
  Status measure_small(Figures* figures);
  Status measure_peers(Figures* figures);
  Status measure_peer(Stores stores, std::size_t elements, double* ns_per_byte);
  void tell_transports(const Figures& figures) const;
  Status share_a_core(bool* shared);
  Status measure_board(Figures* figures);
  Status measure_kernel_copy(Figures* figures);
  Status measure_push(Stores stores, double* ns_per_byte);
  struct Timed;
  Status time_twice(std::span<Timed> all);
  Status measure_link(Figures* figures);
  Status time_large_messages(int distance, double* median);
  Status time_message(int far, std::size_t bytes, bool both_ways, double* median);
  FiguresAndSettings own_settings() const;
  Status compare(const FiguresAndSettings& mine, const FiguresAndSettings& theirs) const;

  const Membership& membership_;
  const Board& board_;
  const CommConfig& config_;
  const LoadedPlans& plans_;
  const std::vector<Transport*> transports_;  // they store as the figures say
  const Run run_;
  const Read read_;
  double pair_ns_ = 0;  // the time of a small message between rank 0 and another rank, on these two
  const double ranks_per_core_;  // of rank 0's machine, so that all ranks measure the same
};

}  // namespace hocket::internal
