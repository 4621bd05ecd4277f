// A common clock for the ranks of several hosts: the clock of rank 0. All ranks must make the same
// calls.
#pragma once

#include <cstddef>
#include <vector>

#include "call.h"
#include "clock.h"
#include "hocket/hocket.h"

namespace hocket::perf {

class CommonClock {
 public:
  /// Finds which ranks share a clock.
  bool start(hocketComm_t comm, Failure* failure);
  /// Measures the offset of every clock by 100 round trips to a rank with that clock; the shortest
  /// counts.
  bool measure(Failure* failure);
  /// Converts a time of this rank, between the last two measurements, to the clock of rank 0.
  double common_us(double here_us) const;
  /// The largest error of the difference of two ranks' times on the common clock.
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
