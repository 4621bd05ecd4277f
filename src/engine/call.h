// A collective or a message that the user called, with checked arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace hocket::internal {

struct Call {
  Collective collective = Collective::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  Dtype dtype = Dtype::int8;
  Op op = Op::sum;
  int root = -1;  // broadcast: the root; send, recv: the peer
  /// Number of the call among the user's collectives and messages on the communicator, from 1 on;
  /// 0: a call of the library itself.
  std::uint64_t number = 0;
};

constexpr bool is_p2p(const Call& call) { return is_p2p(call.collective); }

}  // namespace hocket::internal
