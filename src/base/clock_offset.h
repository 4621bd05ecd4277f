// The offset of the clock of another host, from round trips of messages.
#pragma once

#include <vector>

namespace hocket::internal {

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
inline ClockOffset offset_of(const std::vector<RoundTrip>& rounds) {
  ClockOffset best;
  for (const RoundTrip& round : rounds) {
    const double middle_us = (round.sent_us + round.received_us) / 2;
    const double half_us = (round.received_us - round.sent_us) / 2;
    if (&round == rounds.data() || half_us < best.uncertainty_us) {
      best = {middle_us, round.answered_us - middle_us, half_us};
    }
  }
  return best;
}

}  // namespace hocket::internal
