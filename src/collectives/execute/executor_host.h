// The memory that the executor asks for: scratch of this rank, and mapped buffers of peers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "memory/regions.h"

namespace hocket::internal {

class ExecutorHost {
 public:
  /// Returns `bytes` bytes for the scratch blocks of a program over messages, valid until the next
  /// call. Null: there is no memory.
  virtual std::byte* private_scratch(std::size_t bytes) = 0;
  /// Sets *out to the address in this process of the `bytes` bytes at `offset` in a region of
  /// `peer`. Returns Code::in_progress while the region is not mapped yet, which happens when this
  /// rank first uses that region; another error if the bytes cannot be mapped. The mapping stays
  /// while `operation`, the number of the collective that asks, is the newest.
  virtual Status map_remote(int peer, RegionOffset offset, std::size_t bytes,
                            std::uint64_t operation, std::byte** out) = 0;

 protected:
  ~ExecutorHost() = default;
};

}  // namespace hocket::internal
