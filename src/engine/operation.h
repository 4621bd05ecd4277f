// A collective or a message that an engine runs, from its beginning to its end.
#pragma once

#include <optional>

#include "base/clock.h"
#include "collectives/execute/executor.h"
#include "engine/binder.h"
#include "engine/record.h"
#include "engine/work.h"

namespace hocket::internal {

/// An operation that has ended can be used again for the next call, which is then bound faster.
struct Operation {
  /// How often the engine looks at the ranks that an operation waits for.
  static constexpr Nanos between_looks = 100 * nanos_per_ms;

  Execution execution;
  BoundCall bound;
  Work* work = nullptr;          // the work that has the call; or null
  std::optional<Nanos> started;  // empty until the clock is first read
  Nanos next_late_log = 0;
  Nanos next_look = 0;  // when to look again at the ranks that it waits for
  OperationRecord::Id recorded = 0;
  bool admitted = false;  // is admitted, and the record says so
  bool told = false;      // the peers were told in which call this rank waits

  /// To be called before the next call is bound. given: the work of that call; or null.
  void reset(Work* given) {
    work = given;
    started.reset();
    recorded = 0;
    admitted = told = false;
  }
};

}  // namespace hocket::internal
