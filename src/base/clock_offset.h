// Finds out whether processes share a clock, and computes the offset of the clock of another host
// from round trips of messages. hocket-perf uses it too.
#pragma once

#include <cstdint>
#include <vector>

namespace hocket::internal {

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

}  // namespace hocket::internal
