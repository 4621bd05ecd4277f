// Communicators that a call of the user makes: at once, on a stream of their own (blocking = 0), or
// at the end of a group, whose communicators are made all at once.
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
  /// Called once, in the user's thread and in the order of the calls. Code::in_progress: what there
  /// is to do runs on the stream of another communicator, and *make stays empty.
  std::function<Status(Make* make)> begin;
};

/// Outside of a group: makes it now. In a group: keeps it for the end of the group.
Status make_or_collect(Making making);

/// Keeps it in the open group of this thread.
Status collect(Making making);

/// Makes all at once, each in a thread of its own. If one with blocking = 1 fails, no communicator
/// with blocking = 1 exists afterwards.
Status make_all(const std::vector<Making>& makings);

}  // namespace hocket::internal::api
