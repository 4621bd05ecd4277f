// Makes sure that nothing which a rank has started outlives the job.
#pragma once

#include "base/clock.h"

namespace hocket::internal::launch {

/// From now on a process whose parent dies becomes this process's child.
void adopt_orphans();

/// Kills and reaps children until none is left, grandchildren too as they come. False: something
/// was still there after limit (a process in an uninterruptible wait).
bool kill_descendants(Nanos limit);

}  // namespace hocket::internal::launch
