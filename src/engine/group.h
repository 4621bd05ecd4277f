// Runs calls: one alone, or many that a group fused. Calls of one stream run together, so that all
// sends and receives progress at once; calls of one communicator keep their order, whatever streams
// they are on.
#pragma once

#include <vector>

#include "engine/communicator.h"
#include "engine/stream.h"

namespace hocket::internal {

struct GroupedCall {
  Communicator* communicator = nullptr;
  Call call;
  HostStream* stream = nullptr;  // null: the caller's thread
};

/// Runs them, or queues them on their streams. Errors of the caller's thread's calls are returned;
/// those of streams are the streams' and the communicators'. The caller has entered every
/// communicator.
Status launch(const std::vector<GroupedCall>& calls);

/// launch() of a single call, without its allocations.
Status launch_one(Communicator& communicator, const Call& call, HostStream* stream);

}  // namespace hocket::internal
