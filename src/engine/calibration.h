// What ranks agree on when a communicator is made: rank 0 measures the machine, and its figures and
// settings go to all. A rank whose own settings would make it choose differently says so now, not
// by a hang later.
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

class Calibration {
 public:
  /// Runs calls on the communicator to their end, all ranks the same ones.
  using Run = std::function<Status(std::span<const Call> calls)>;

  /// All but `run` outlive it.
  Calibration(const Session& session, const Membership& membership, const Board& board,
              const CommConfig& config, Run run)
      : session_(session),
        membership_(membership),
        board_(board),
        config_(config),
        run_(std::move(run)) {}

  /// Collective, while the communicator runs nothing else: figures become rank 0's.
  /// Code::mismatch where this rank's settings differ from rank 0's.
  Status agree(Figures* figures);

 private:
  struct Hello;
  Status run(std::span<const Call> calls) { return run_(calls); }
  Status measure(Figures* figures);
  Status measure_barrier(double* ns);
  Status measure_board(Figures* figures);
  Status measure_push(Stores stores, double* ns_per_byte);
  Status measure_link(Figures* figures);
  Status time_messages(int far, int messages, std::size_t bytes, double* best);
  Hello own_hello() const;
  Status compare(const Hello& mine, const Hello& theirs) const;

  const Session& session_;
  const Membership& membership_;
  const Board& board_;
  const CommConfig& config_;
  const Run run_;
};

}  // namespace hocket::internal
