// The limits of a rank that waits for its launcher or for rank 0: the join deadline, and an abort
// by the user.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/stop.h"

namespace hocket::internal {

class JoinWait {
 public:
  /// stop: may be null.
  JoinWait(std::int64_t deadline_ms, const StopRequest* stop);

  /// An error if the deadline has passed or the user has aborted the join. doing: "waiting for the
  /// PMI server", for the message.
  Status check(const std::string& doing) const;
  /// Waits until poll() reports one of the events; the same errors.
  Status until(int fd, short events, const std::string& doing) const;
  /// The same, but at most ms milliseconds; *ready: whether there was an event.
  Status until(int fd, short events, std::int64_t ms, bool* ready, const std::string& doing) const;
  /// Waits so long.
  Status pause(std::int64_t ms, const std::string& doing) const;
  /// What is left until the deadline, at least 1.
  std::int64_t left_ms() const;

 private:
  std::int64_t deadline_ms_;
  Nanos deadline_;
  const StopRequest* stop_;
};

}  // namespace hocket::internal
