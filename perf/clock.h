// The clocks of the processes, and the offset of the clock of another host.
#pragma once

#include "base/clock_offset.h"

namespace hocket::perf {

/// CLOCK_MONOTONIC.
double now_us();

using internal::clock_id;
using internal::ClockOffset;
using internal::offset_of;
using internal::RoundTrip;

/// Converts a time of another clock to this clock, from offsets that were measured before and
/// after, with a constant drift between them.
double on_this_clock(double their_us, const ClockOffset& before, const ClockOffset& after);

}  // namespace hocket::perf
