#include "clock.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "data.h"

namespace hocket::perf {

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::uint64_t clock_id() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  char space[64] = {};
  if (::readlink("/proc/self/ns/time", space, sizeof space - 1) > 0) text += space;
  return hash_bytes(text.data(), text.size());
}

double on_this_clock(double their_us, const ClockOffset& before, const ClockOffset& after) {
  const double here_us = their_us - before.offset_us;
  const double span_us = after.at_us - before.at_us;
  const double part = span_us > 0 ? (here_us - before.at_us) / span_us : 0;
  return their_us - (before.offset_us + part * (after.offset_us - before.offset_us));
}

}  // namespace hocket::perf
