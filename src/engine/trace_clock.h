// One clock for the traces of all ranks of a job: the clock of rank 0 of its first communicator.
#pragma once

#include <functional>
#include <span>

#include "base/clock_offset.h"
#include "engine/call.h"
#include "engine/membership.h"

namespace hocket::internal {

/// Collective, while the communicator runs nothing else. *offset receives the offset of this rank's
/// clock; its error is at most the uncertainty. run: runs the calls to their end.
Status measure_trace_clock(const Membership& membership,
                           const std::function<Status(std::span<const Call>)>& run,
                           ClockOffset* offset);

}  // namespace hocket::internal
