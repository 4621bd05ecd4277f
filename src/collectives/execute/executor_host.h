// What the executor needs from outside: memory, its own and that of peers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "memory/regions.h"

namespace hocket::internal {

class ExecutorHost {
 public:
  /// So many bytes for the scratch blocks of a program over messages, valid until the next call;
  /// null: there is no memory.
  virtual std::byte* private_scratch(std::size_t bytes) = 0;
  /// Where so many bytes at a place of a peer are mapped here; a status where they cannot be.
  /// in_progress: not yet, the first time that this rank meets a peer's region. The mapping stays
  /// while `operation`, the number of the collective that asks, is the newest.
  virtual Status map_remote(int peer, RegionOffset offset, std::size_t bytes,
                            std::uint64_t operation, std::byte** out) = 0;

 protected:
  ~ExecutorHost() = default;
};

}  // namespace hocket::internal
