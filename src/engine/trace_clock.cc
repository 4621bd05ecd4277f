#include "engine/trace_clock.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace hocket::internal {
namespace {

constexpr int round_trips = 100;

/// The offset of this process, as its first communicator found it. The communicators that are made
/// later count from there, whichever rank is their rank 0.
struct ProcessOffset {
  std::mutex mutex;
  std::optional<ClockOffset> known;
  static ProcessOffset& get() {
    static auto* offset = new ProcessOffset;
    return *offset;
  }
};

double now_us() { return static_cast<double>(monotonic_now()) / 1000; }

class Measurement {
 public:
  Measurement(const Membership& membership, const std::function<Status(std::span<const Call>)>& run)
      : membership_(membership), run_(run) {}

  /// From rank 0, which then has a round trip in each of *rounds, to `leader` and back.
  Status ask(int leader, std::vector<RoundTrip>* rounds) {
    for (RoundTrip& round : *rounds) {
      round.sent_us = now_us();
      HOCKET_RETURN_IF_ERROR(message(Collective::send, leader, &round.sent_us));
      HOCKET_RETURN_IF_ERROR(message(Collective::recv, leader, &round.answered_us));
      round.received_us = now_us();
    }
    return {};
  }
  Status answer() {
    for (int i = 0; i < round_trips; ++i) {
      double time_us = 0;
      HOCKET_RETURN_IF_ERROR(message(Collective::recv, 0, &time_us));
      time_us = now_us();
      HOCKET_RETURN_IF_ERROR(message(Collective::send, 0, &time_us));
    }
    return {};
  }
  Status tell(std::vector<ClockOffset>* offsets) {
    static_assert(sizeof(ClockOffset) == 3 * sizeof(double));
    const Call call{Collective::broadcast,
                    offsets->data(),
                    offsets->data(),
                    3 * offsets->size(),
                    Dtype::float64,
                    Op::sum,
                    0};
    return run_({&call, 1});
  }
  /// The lowest rank of each clock, that of rank 0 first; *mine: the index of this rank's.
  Status find_leaders(std::vector<int>* leaders, std::size_t* mine) {
    const std::uint64_t own = clock_id();
    std::vector<std::uint64_t> clocks(static_cast<std::size_t>(membership_.ranks()), own);
    if (clocks.size() > 1) {
      const Call call{Collective::all_gather, &own, clocks.data(), 1, Dtype::uint64};
      HOCKET_RETURN_IF_ERROR(run_({&call, 1}));
    }
    std::vector<std::uint64_t> found;
    for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
      if (std::ranges::find(found, clocks[rank]) != found.end()) continue;
      found.push_back(clocks[rank]);
      leaders->push_back(static_cast<int>(rank));
    }
    *mine = static_cast<std::size_t>(std::ranges::find(found, own) - found.begin());
    return {};
  }

 private:
  Status message(Collective collective, int peer, double* value) {
    const Call call{collective, value, value, 1, Dtype::float64, Op::sum, peer};
    return run_({&call, 1});
  }

  const Membership& membership_;
  const std::function<Status(std::span<const Call>)>& run_;
};

}  // namespace

Status measure_trace_clock(const Membership& membership,
                           const std::function<Status(std::span<const Call>)>& run,
                           ClockOffset* offset) {
  ProcessOffset& process = ProcessOffset::get();
  Measurement measurement(membership, run);
  std::size_t mine = 0;
  std::vector<int> leaders;
  HOCKET_RETURN_IF_ERROR(measurement.find_leaders(&leaders, &mine));
  std::vector<ClockOffset> offsets(leaders.size());
  {
    const std::lock_guard lock(process.mutex);
    if (process.known) offsets[0] = *process.known;
  }
  for (std::size_t i = 1; i < leaders.size(); ++i) {
    std::vector<RoundTrip> rounds(round_trips);
    if (membership.rank() == leaders[i]) HOCKET_RETURN_IF_ERROR(measurement.answer());
    if (membership.rank() != 0) continue;
    HOCKET_RETURN_IF_ERROR(measurement.ask(leaders[i], &rounds));
    offsets[i] = offset_of(rounds);
    offsets[i].offset_us += offsets[0].offset_us;
    offsets[i].uncertainty_us += offsets[0].uncertainty_us;
  }
  if (membership.ranks() > 1) HOCKET_RETURN_IF_ERROR(measurement.tell(&offsets));
  const std::lock_guard lock(process.mutex);
  if (!process.known) process.known = offsets[mine];
  *offset = *process.known;
  return {};
}

}  // namespace hocket::internal
