// Ensures that no process that a rank has started outlives the job.
#pragma once

#include "base/clock.h"

namespace hocket::internal::launch {

/// From now on a descendant whose parent dies becomes a child of this process.
void adopt_orphans();

/// Kills and reaps children until there is none; orphaned grandchildren become children too.
/// Returns false if a child remains after limit (a process in an uninterruptible wait).
bool kill_descendants(Nanos limit);

}  // namespace hocket::internal::launch
