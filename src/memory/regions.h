// Regions: buffers of this process that local peers can map, from hocketMemAlloc or registered with
// a descriptor. Peers identify a region by its number, which is never used again.
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

/// The position of a buffer, as peers see it: the offset in bytes in the file behind a region.
struct RegionOffset {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
};

/// The regions of one process. Process (api/process.h) has one for all communicators.
class Regions {
 public:
  Regions() = default;
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  /// Allocates zeroed, page-aligned memory from a new memfd.
  Status allocate(std::size_t size, void** out);
  /// Frees memory of allocate(). Its pages return to the system even while peers have it mapped.
  Status free(void* pointer);
  /// Registers [base, base + size), which the caller has mapped shared from fd at file offset
  /// `offset`.
  Status add(void* base, std::size_t size, int fd, std::uint64_t offset, std::uint64_t* number);
  Status remove(std::uint64_t number);

  /// If a region that peers may map holds all of [pointer, pointer + bytes), sets *offset.
  bool find(const void* pointer, std::size_t bytes, RegionOffset* offset);
  /// The address of `bytes` bytes at `offset` in this process; null if no region holds them.
  std::byte* address(const RegionOffset& offset, std::size_t bytes);
  /// A duplicate of the region's descriptor; empty if the region does not exist any more.
  UniqueFd descriptor(std::uint64_t number);
  /// Grows whenever a lookup may return another result than before.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  /// Revokes [pointer, pointer + bytes): replaces its pages by private memory with the same bytes,
  /// so that late peers write into pages that this process does not see. From now on the whole
  /// region is staged. If peers still write to another buffer on the same pages, that data is lost;
  /// the operation of that buffer detects this by was_revoked().
  Status revoke(void* pointer, std::size_t bytes);
  /// True if a page of [pointer, pointer + bytes) was revoked.
  bool was_revoked(const void* pointer, std::size_t bytes);

 private:
  struct Region {
    std::uint64_t number;
    std::size_t size;
    UniqueFd fd;
    std::uint64_t file_offset;
    bool allocated;  // by allocate(): free() ends it
    bool revoked;
    // Pages that were revoked: [first, second).
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> taken = {};
  };
  using ByAddress = std::map<std::uintptr_t, Region>;
  ByAddress::iterator holding(std::uintptr_t address, std::size_t bytes);
  Status insert(std::uintptr_t base, Region region, std::uint64_t* number);
  std::uint64_t next_number();

  std::mutex mutex_;
  ByAddress by_address_;
  std::uint64_t last_number_ = 0;  // 0: there was no region yet
  std::atomic<std::uint64_t> generation_{1};
};

}  // namespace hocket::internal
