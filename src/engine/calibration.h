// The agreement of the ranks when a communicator is made. Rank 0 measures the machine and sends its
// figures and settings to all ranks, so that all choose the same algorithms. A rank whose own
// settings would make it choose differently gets an error here, and does not hang later.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "collectives/select/selector.h"
#include "engine/call.h"
#include "engine/comm_config.h"
#include "engine/membership.h"
#include "transport/shm/board.h"

namespace hocket::internal {

/// Sets the two figures of small messages so that the prices of the selector are the times that two
/// operations took: an exchange, in which each rank sends to so many neighbours and receives from
/// as many (its price is that of `one-shot`), and an all-reduce by `tree`. No figure becomes 0 or
/// less, whatever the noise in the times.
void set_message_costs(int ranks, int neighbours, double exchange_ns, double tree_ns,
                       Figures* figures);

class Calibration {
 public:
  /// Runs calls on the communicator to their end; all ranks run the same calls. algorithm: for
  /// collectives that have it; empty: the selector chooses.
  using Run = std::function<Status(std::span<const Call> calls, const char* algorithm)>;

  /// All arguments but `run` outlive the calibration.
  Calibration(const Session& session, const Membership& membership, const Board& board,
              const CommConfig& config, const LoadedPlans& plans, Run run)
      : session_(session),
        membership_(membership),
        board_(board),
        config_(config),
        plans_(plans),
        run_(std::move(run)) {}

  /// Collective, while the communicator runs nothing else. *figures receives the figures of rank 0,
  /// which are measured if they are not known. Code::mismatch if the settings of this rank differ
  /// from those of rank 0.
  Status agree(Figures* figures, bool known = false);

 private:
  struct Hello;
  Status run(std::span<const Call> calls, const char* algorithm = "") {
    return run_(calls, algorithm);
  }
  Status measure(Figures* figures);
  Status measure_operations(Figures* figures);
  Status measure_peer(double* ns_per_byte);
  Status share_a_core(bool* shared);
  Status measure_board(Figures* figures);
  Status measure_push(Stores stores, double* ns_per_byte);
  Status measure_messages(Figures* figures);
  Status time_in_sequence(std::span<const Call> calls, const char* algorithm, double* ns);
  Status measure_link(Figures* figures);
  Status measure_sync(Figures* figures);
  Status time_message(int far, std::size_t bytes, bool both_ways, double* median);
  Hello own_hello() const;
  Status compare(const Hello& mine, const Hello& theirs) const;

  const Session& session_;
  const Membership& membership_;
  const Board& board_;
  const CommConfig& config_;
  const LoadedPlans& plans_;
  const Run run_;
};

}  // namespace hocket::internal
