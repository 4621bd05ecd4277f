// Runs calls: a single one, or those of a group. Calls of one stream run together, so that all
// sends and receives progress at once. Calls of one communicator keep their order on all streams.
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

/// Runs the calls, or queues them on their streams. Returns the error of the calls that ran in this
/// thread; the stream and the communicator keep the error of a call on a stream. The caller has
/// entered every communicator.
Status launch(const std::vector<GroupedCall>& calls);

/// launch() of a single call.
Status launch_in_order(Communicator& communicator, const Call& call, HostStream* stream);
/// The same, but allocates nothing if the call can run in this thread at once.
inline Status launch_one(Communicator& communicator, const Call& call, HostStream* stream) {
  if (stream == nullptr && !communicator.order().pending()) [[likely]] {
    return communicator.run(call);
  }
  return launch_in_order(communicator, call, stream);
}

}  // namespace hocket::internal
