#include "bootstrap/launchers/join_wait.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

namespace hocket::internal {
namespace {
constexpr std::int64_t step_ms = 50;  // how often an abort is looked for
}

JoinWait::JoinWait(std::int64_t deadline_ms, const StopRequest* stop)
    : deadline_ms_(deadline_ms),
      deadline_(monotonic_now() + deadline_ms * nanos_per_ms),
      stop_(stop) {}

Status JoinWait::check(const std::string& doing) const {
  if (stop_ != nullptr && stop_->stopped()) {
    return {Code::aborted, "the join was aborted while the rank was " + doing};
  }
  if (monotonic_now() < deadline_) return {};
  return {Code::timeout, fmt::format("the join deadline of {} ms passed while the rank was {}",
                                     deadline_ms_, doing)};
}

Status JoinWait::until(int fd, short events, std::int64_t ms, bool* ready,
                       const std::string& doing) const {
  *ready = false;
  const Nanos end = monotonic_now() + ms * nanos_per_ms;
  while (true) {
    HOCKET_RETURN_IF_ERROR(check(doing));
    const std::int64_t left = (end - monotonic_now()) / nanos_per_ms;
    pollfd event{fd, events, 0};
    const std::int64_t wait = std::clamp<std::int64_t>(std::min(left, left_ms()), 0, step_ms);
    if (::poll(&event, 1, static_cast<int>(wait)) > 0) {
      *ready = true;
      return {};
    }
    if (left <= 0) return {};
  }
}

Status JoinWait::until(int fd, short events, const std::string& doing) const {
  bool ready = false;
  while (!ready) HOCKET_RETURN_IF_ERROR(until(fd, events, step_ms, &ready, doing));
  return {};
}

Status JoinWait::pause(std::int64_t ms, const std::string& doing) const {
  bool ready = false;
  return until(-1, 0, ms, &ready, doing);
}

std::int64_t JoinWait::left_ms() const {
  return std::max<std::int64_t>((deadline_ - monotonic_now()) / nanos_per_ms, 1);
}

}  // namespace hocket::internal
