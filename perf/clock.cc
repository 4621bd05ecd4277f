#include "clock.h"

#include <chrono>

namespace hocket::perf {

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double on_this_clock(double their_us, const ClockOffset& before, const ClockOffset& after) {
  const double here_us = their_us - before.offset_us;
  const double span_us = after.at_us - before.at_us;
  const double part = span_us > 0 ? (here_us - before.at_us) / span_us : 0;
  return their_us - (before.offset_us + part * (after.offset_us - before.offset_us));
}

}  // namespace hocket::perf
