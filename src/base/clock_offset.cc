#include "base/clock_offset.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "base/mix.h"

namespace hocket::internal {

std::uint64_t clock_id() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  char space[64] = {};
  if (::readlink("/proc/self/ns/time", space, sizeof space - 1) > 0) text += space;
  std::uint64_t id = 0;
  for (const char letter : text) id = mix(id * 257 + static_cast<unsigned char>(letter));
  return id;
}

ClockOffset offset_of(const std::vector<RoundTrip>& rounds) {
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
