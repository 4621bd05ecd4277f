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
  /// The lowest rank of each machine, that of rank 0 first; *mine: the index of this rank's.
  std::vector<int> leaders(std::size_t* mine) const {
    std::vector<int> found;
    for (int rank = 0; rank < membership_.ranks(); ++rank) {
      const auto same =
          std::ranges::find(found, machine(rank), [this](int r) { return machine(r); });
      if (rank == membership_.rank()) *mine = static_cast<std::size_t>(same - found.begin());
      if (same == found.end()) found.push_back(rank);
    }
    return found;
  }

 private:
  Status message(Collective collective, int peer, double* value) {
    const Call call{collective, value, value, 1, Dtype::float64, Op::sum, peer};
    return run_({&call, 1});
  }
  std::uint64_t machine(int rank) const { return membership_.member(rank).machine; }

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
  const std::vector<int> leaders = measurement.leaders(&mine);
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
