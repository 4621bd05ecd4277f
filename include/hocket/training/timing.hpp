// When things of a training step happened. All times are seconds of std::chrono::steady_clock since
// that clock's epoch.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace hocket::training {

/// Now.
[[nodiscard]] inline double now_s() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// When a bucket was communicated.
struct BucketTiming {
  int bucket = 0;         // its index in the order of communication
  std::size_t bytes = 0;  // of this rank's buffer
  double begin_s = 0;     // the call was made
  double end_s = 0;       // the call had ended
};

/// The communication of a backward, or of a sharded optimizer's step.
struct CommunicationTimings {
  std::vector<BucketTiming> buckets;
  double wait_begin_s = 0;      // nothing was left to compute, ...
  double wait_end_s = 0;        // ... and everything communicated had ended
  const char* what = "bucket";  // as a trace calls each of them
};

}  // namespace hocket::training
