// The processes' clocks, and how the clock of another host is read.
#pragma once

#include <cstdint>
#include <vector>

namespace hocket::perf {

/// CLOCK_MONOTONIC.
double now_us();

/// Equal where two processes read the same CLOCK_MONOTONIC: one boot of one kernel, and one time
/// namespace.
std::uint64_t clock_id();

/// A message to another process and its answer, which carries the time of that process's clock.
struct RoundTrip {
  double sent_us = 0;
  double answered_us = 0;  // on the other clock
  double received_us = 0;
};

/// How far another clock is ahead of this one. The answer was made somewhere between sent and
/// received: half the round trip bounds the error.
struct ClockOffset {
  double at_us = 0;  // on this clock
  double offset_us = 0;
  double uncertainty_us = 0;
};
/// The offset of the shortest round trip.
ClockOffset offset_of(const std::vector<RoundTrip>& rounds);

/// Another clock's time on this one: offsets measured before and after, a constant drift between.
double on_this_clock(double their_us, const ClockOffset& before, const ClockOffset& after);

}  // namespace hocket::perf
