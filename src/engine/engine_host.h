// The interface through which an engine uses everything outside it: names of ranks, faults and
// doorbells, mapped memory, and the report of its own failure. A communicator is the host of its
// engine; a test or a simulator has a host of its own. Only on_failure() may block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/execute/executor_host.h"

namespace hocket::internal {

/// The known faults that concern the communicator.
struct FaultNews {
  /// A rank that has left the communicator or ended its process in order.
  struct Gone {
    int rank = -1;
    Status why;  // an error: the rank has ended its process; OK: it has left
    /// Messages of the rank may still be under way: operations that wait for the rank end only when
    /// nothing has moved for this time.
    Nanos patience = 0;
  };
  Status error;                 // the first fault that ends operations, as an error
  std::uint64_t operation = 0;  // the first collective that it ends; 0: it ends all operations
  bool at_once = false;         // it also ends operations that could still go on
  std::vector<Gone> gone;
};

class EngineHost : public ExecutorHost {
 public:
  /// For messages: "rank 3 (host h1, pid 77)".
  virtual std::string name_of_rank(int rank) const = 0;
  /// Wakes a local peer that sleeps.
  virtual void ring(int local_rank) = 0;
  /// Adds new faults.
  virtual void poll_faults(FaultNews* news) = 0;
  /// Asks the other ranks which of them has not begun that collective: each of those becomes the
  /// culprit of a fault. what_waits: a sentence without its full stop, for that fault.
  virtual void ask_for_late_ranks(std::uint64_t collective, const std::string& what_waits) = 0;
  /// Lets local peers map a region of this process. False if they cannot.
  virtual bool export_region(std::uint64_t region) = 0;
  /// Called when the engine has failed in that collective; all earlier collectives have ended here.
  /// tell_peers: the other ranks do not know of the failure yet, and must know when this call
  /// returns. Never called in a round of the engine, see Engine::report_failure().
  virtual void on_failure(const Status& status, std::uint64_t operation, bool tell_peers) = 0;

 protected:
  ~EngineHost() = default;
};

}  // namespace hocket::internal
