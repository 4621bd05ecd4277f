// The monotonic clock. Only the code that drives a loop reads it; all other code has the time as a
// parameter.
#pragma once

#include <chrono>
#include <cstdint>

namespace hocket::internal {

/// A point on the monotonic clock, in nanoseconds. Differences are durations in nanoseconds.
using Nanos = std::int64_t;

inline constexpr Nanos nanos_per_ms = 1'000'000;
inline constexpr Nanos nanos_per_s = 1'000'000'000;

inline Nanos monotonic_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace hocket::internal
