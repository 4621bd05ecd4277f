// One clock for the ranks of several hosts: rank 0's. Collective: all ranks make the same calls.
#pragma once

#include <vector>

#include "call.h"
#include "clock.h"
#include "hocket/hocket.h"

namespace hocket::perf {

class CommonClock {
 public:
  /// Which ranks share a clock.
  bool start(hocketComm_t comm, Failure* failure);
  /// Measures the offset of every clock: a hundred messages to one rank of each and back, of which
  /// the fastest counts.
  bool measure(Failure* failure);
  /// This rank's time on rank 0's clock; between the last two measurements.
  double common_us(double here_us) const;
  /// What two ranks' times on the common clock may be wrong by, taken together.
  double uncertainty_us() const;
  int clocks() const { return static_cast<int>(leaders_.size()); }

 private:
  bool ask(int leader, std::vector<RoundTrip>* rounds, Failure* failure);
  bool answer(Failure* failure);

  hocketComm_t comm_ = nullptr;
  int rank_ = 0;
  std::vector<int> leaders_;  // the lowest rank of each clock; rank 0 first
  std::size_t mine_ = 0;      // index of this rank's clock
  std::vector<ClockOffset> before_, after_;
};

}  // namespace hocket::perf
