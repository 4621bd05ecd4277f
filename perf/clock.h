// The clocks of the processes, and the offset of the clock of another host.
#pragma once

#include <cstdint>
#include <vector>

namespace hocket::perf {

/// CLOCK_MONOTONIC.
double now_us();

/// Equal for two processes that read the same CLOCK_MONOTONIC: the same boot of the same kernel, in
/// the same time namespace.
std::uint64_t clock_id();

/// The times of a message to another process and of its answer, which has the time of that process.
struct RoundTrip {
  double sent_us = 0;
  double answered_us = 0;  // on the other clock
  double received_us = 0;
};

/// The offset of another clock: its time minus the time of this clock. The other process answered
/// between sent and received, so the error is at most half the round trip.
struct ClockOffset {
  double at_us = 0;  // on this clock
  double offset_us = 0;
  double uncertainty_us = 0;
};
/// The offset of the shortest round trip.
ClockOffset offset_of(const std::vector<RoundTrip>& rounds);

/// Converts a time of another clock to this clock, from offsets that were measured before and
/// after, with a constant drift between them.
double on_this_clock(double their_us, const ClockOffset& before, const ClockOffset& after);

}  // namespace hocket::perf
