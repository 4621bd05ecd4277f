// A point in time, by the clock and by the processor time of the process.
#pragma once

#include <time.h>

#include <chrono>

namespace lab {

struct Moment {
  std::chrono::steady_clock::time_point clock;
  double processor_ms = 0;  // of all threads

  static Moment now() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return {std::chrono::steady_clock::now(),
            static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6};
  }
  double ms_since(const Moment& earlier) const {
    return std::chrono::duration<double, std::milli>(clock - earlier.clock).count();
  }
  double processor_ms_since(const Moment& earlier) const {
    return processor_ms - earlier.processor_ms;
  }
};

}  // namespace lab
