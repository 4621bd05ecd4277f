// Buffers of this process that local peers can map: what hocketMemAlloc made, and what was
// registered with a descriptor. A region's number names it to peers and is never used again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "memory/shared_memory.h"

namespace hocket::internal {

/// Where a buffer lies for a peer: so many bytes into the file behind a region.
struct RegionOffset {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
};

class Regions {
 public:
  static Regions& instance();

  /// Zeroed memory of its own memfd, page aligned.
  Status allocate(std::size_t size, void** out);
  /// Frees what allocate() made. Its pages go back to the system even while peers keep it mapped.
  Status free(void* pointer);
  /// Registers [base, base + size), which the caller has mapped shared from fd at file offset
  /// `offset`.
  Status add(void* base, std::size_t size, int fd, std::uint64_t offset, std::uint64_t* number);
  Status remove(std::uint64_t number);

  /// True where [pointer, pointer + bytes) lies in one region that peers may map.
  bool find(const void* pointer, std::size_t bytes, RegionOffset* place);
  /// The address of so many bytes at a place of this process; null where they are not (any more)
  /// there.
  std::byte* address(const RegionOffset& place, std::size_t bytes);
  /// A duplicate of the region's descriptor; empty where the region is gone.
  UniqueFd descriptor(std::uint64_t number);
  /// Grows whenever a lookup might give another answer than before.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  /// Takes [pointer, pointer + bytes) away from peers: the same bytes at the same address, in
  /// private memory, and the whole region is staged from now on. Late peers write into pages that
  /// nobody sees: whatever else of this process lies in those pages and is still being written by
  /// peers is lost, which its operation finds out by was_revoked().
  Status revoke(void* pointer, std::size_t bytes);
  /// True where a page of [pointer, pointer + bytes) has been taken away from peers.
  bool was_revoked(const void* pointer, std::size_t bytes);

 private:
  Regions();
  struct Region {
    std::uint64_t number;
    std::size_t size;
    UniqueFd fd;
    std::uint64_t file_offset;
    bool allocated;  // by allocate(): free() ends it
    bool revoked;
    // Pages taken away from peers: [first, second).
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> taken = {};
  };
  using ByAddress = std::map<std::uintptr_t, Region>;
  ByAddress::iterator holding(std::uintptr_t address, std::size_t bytes);
  Status insert(std::uintptr_t base, Region region, std::uint64_t* number);

  std::mutex mutex_;
  ByAddress by_address_;
  std::uint64_t last_number_ = 0;
  std::atomic<std::uint64_t> generation_{1};
};

}  // namespace hocket::internal
