#include "common_clock.h"

#include <algorithm>

namespace hocket::perf {
namespace {

constexpr int round_trips = 100;

}  // namespace

bool CommonClock::start(hocketComm_t comm, Failure* failure) {
  comm_ = comm;
  int ranks = 0;
  if (!ok(hocketCommUserRank(comm, &rank_), "hocketCommUserRank", comm, failure) ||
      !ok(hocketCommCount(comm, &ranks), "hocketCommCount", comm, failure)) {
    return false;
  }
  const std::uint64_t mine = clock_id();
  std::vector<std::uint64_t> ids(static_cast<std::size_t>(ranks));
  if (!ok(hocketAllGather(&mine, ids.data(), 1, hocketUint64, comm, nullptr),
          "hocketAllGather of the clocks", comm, failure)) {
    return false;
  }
  for (std::size_t r = 0; r < ids.size(); ++r) {
    if (std::find(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(r), ids[r]) ==
        ids.begin() + static_cast<std::ptrdiff_t>(r)) {
      leaders_.push_back(static_cast<int>(r));
    }
  }
  for (std::size_t i = 0; i < leaders_.size(); ++i) {
    if (ids[static_cast<std::size_t>(leaders_[i])] == mine) mine_ = i;
  }
  before_.resize(leaders_.size());
  after_.resize(leaders_.size());
  return true;
}

bool CommonClock::ask(int leader, std::vector<RoundTrip>* rounds, Failure* failure) {
  for (int i = 0; i < round_trips; ++i) {
    RoundTrip round;
    round.sent_us = now_us();
    if (!ok(hocketSend(&round.sent_us, 1, hocketFloat64, leader, comm_, nullptr), "hocketSend",
            comm_, failure) ||
        !ok(hocketRecv(&round.answered_us, 1, hocketFloat64, leader, comm_, nullptr), "hocketRecv",
            comm_, failure)) {
      return false;
    }
    round.received_us = now_us();
    rounds->push_back(round);
  }
  return true;
}

bool CommonClock::answer(Failure* failure) {
  for (int i = 0; i < round_trips; ++i) {
    double asked_us = 0;
    if (!ok(hocketRecv(&asked_us, 1, hocketFloat64, 0, comm_, nullptr), "hocketRecv", comm_,
            failure)) {
      return false;
    }
    const double here_us = now_us();
    if (!ok(hocketSend(&here_us, 1, hocketFloat64, 0, comm_, nullptr), "hocketSend", comm_,
            failure)) {
      return false;
    }
  }
  return true;
}

bool CommonClock::measure(Failure* failure) {
  before_.swap(after_);
  if (leaders_.size() == 1) return true;
  for (std::size_t i = 1; i < leaders_.size(); ++i) {
    std::vector<RoundTrip> rounds;
    if (rank_ == 0 && !ask(leaders_[i], &rounds, failure)) return false;
    if (rank_ == leaders_[i] && !answer(failure)) return false;
    if (rank_ == 0) after_[i] = offset_of(rounds);
  }
  static_assert(sizeof(ClockOffset) == 3 * sizeof(double));
  return ok(hocketBroadcast(after_.data(), after_.data(), 3 * after_.size(), hocketFloat64, 0,
                            comm_, nullptr),
            "hocketBroadcast of the clocks' offsets", comm_, failure);
}

double CommonClock::common_us(double here_us) const {
  return mine_ == 0 ? here_us : on_this_clock(here_us, before_[mine_], after_[mine_]);
}

double CommonClock::uncertainty_us() const {
  std::vector<double> worst;
  for (std::size_t i = 0; i < after_.size(); ++i) {
    worst.push_back(std::max(before_[i].uncertainty_us, after_[i].uncertainty_us));
  }
  std::sort(worst.rbegin(), worst.rend());
  return worst.size() > 1 ? worst[0] + worst[1] : 0;
}

}  // namespace hocket::perf
