// Makes the communicators that a call of the user asks for: at once; on a stream of its own, if
// blocking = 0; or at the end of a group, which makes all its communicators at once.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "api/handle.h"

namespace hocket::internal::api {

/// Makes the communicator, together with its other ranks.
using Make = std::function<Status(const CommContext&, std::unique_ptr<Communicator>*)>;

struct Making {
  const char* function;  // the call of the user
  bool blocking = true;
  /// Receives the communicator; null where the call gives none (a split without a color).
  hocketComm_t* out = nullptr;
  /// Called once, in the user's thread and in the order of the calls. If it returns
  /// Code::in_progress, the work runs on the stream of another communicator, and *make stays empty.
  std::function<Status(Make* make)> begin;
};

/// Outside of a group: makes the communicator now. In a group: keeps `making` for the end of the
/// group.
Status make_or_collect(Making making);

/// Keeps `making` in the open group of this thread.
Status collect(Making making);

/// Makes all communicators at once, each in a thread of its own. If the making of one with blocking
/// = 1 fails, no communicator with blocking = 1 exists afterwards.
Status make_all(const std::vector<Making>& makings);

}  // namespace hocket::internal::api
