// A collective or a message that the user called, with checked arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/collectives.h"
#include "base/types.h"
#include "reduce/user_fold.h"

namespace hocket::internal {

/// The blocks of a varying call, which have different counts. Copied from the caller's arrays,
/// since the call may run later. A call shares them with the call before if they are equal.
struct VaryingBlocks {
  /// For a buffer with a block for each rank: the elements of each block, and the element at which
  /// it begins (0 for an empty block). Empty for other buffers, and on a rank without the buffer.
  struct Side {
    std::vector<std::size_t> counts, offsets;
    bool operator==(const Side&) const = default;
  };
  Side input, output;
  // The next three are 0 if not all ranks know all blocks.
  std::size_t longest = 0;  // elements of the longest block
  std::size_t total = 0;    // elements of all blocks
  std::int32_t hash = 0;    // of the counts: 31 bits
  bool operator==(const VaryingBlocks&) const = default;
};

struct Call {
  Collective collective = Collective::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  /// In a varying call: the elements of this rank's own block, in the buffer that has only this
  /// block (Blocks::own).
  std::size_t count = 0;
  Dtype dtype = Dtype::int8;
  Op op = Op::sum;
  int root = -1;  // of a rooted collective: the root; send, recv: the peer
  /// Number of the call among the user's collectives and messages on the communicator, from 1 on;
  /// 0: a call of the library itself.
  std::uint64_t number = 0;
  /// Number of the first call of a row: calls with the same row differ only in buffers and number;
  /// 0: the call is in no row.
  std::uint64_t row = 0;
  /// For a datatype of the user: the number of elements of dtype in one of its elements; count is a
  /// multiple of it.
  std::uint32_t unit = 1;
  std::shared_ptr<const VaryingBlocks> varying = nullptr;  // null: blocks of one size
  std::shared_ptr<const UserFold> user = nullptr;          // of an operator of the user
  std::uint64_t scalar = 0;  // of PreMulSum, in the type of partial results
};

constexpr bool is_p2p(const Call& call) { return is_p2p(call.collective); }

}  // namespace hocket::internal
