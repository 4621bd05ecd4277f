// Regions: buffers of this process that local peers can map, from hocketMemAlloc or registered with
// a descriptor. Peers identify a region by its number, which is never used again. A buffer in
// a region can be revoked: a late peer that still writes then reaches no memory of this process.
//
// Kept regions. When a peer first uses a region, it fetches the descriptor and maps the file, which
// takes as long as hundreds of small collectives. So free() keeps a region for a later allocate()
// of about the same size. A program that allocates buffers for each call then gets the same regions
// again, which its peers have mapped already.
//
// Shared heap. If the process has a shared heap (heap/shared_heap.h), the segments of this heap are
// regions too. The heap does not report new segments. So a lookup that finds no region asks the
// heap for segments that it has added.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "heap/segments.h"
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

  /// The number of regions that free() keeps, and their bytes together, have these limits.
  static constexpr std::size_t most_kept = 64;
  static constexpr std::size_t most_kept_bytes = std::size_t{64} << 20;

  /// Allocates zeroed, page-aligned memory from a memfd.
  Status allocate(std::size_t size, void** out);
  /// Frees memory of allocate(). A region of at most a quarter of most_kept_bytes is kept, and the
  /// kept regions that were freed longest ago end until the limits hold. The pages of a region that
  /// ends return to the system even while peers have it mapped.
  Status free(void* pointer);
  /// Registers [base, base + size), which the caller has mapped shared from fd at file offset
  /// `offset`.
  Status add(void* base, std::size_t size, int fd, std::uint64_t offset, std::uint64_t* number);
  Status remove(std::uint64_t number);
  /// Lets peers map the segments of the shared heap. Both are functions of heap/segments.h, or null
  /// if the process has no shared heap.
  void use_heap(decltype(&hocket_heap_segments) segments,
                decltype(&hocket_heap_has_private_pages) has_private_pages);

  /// If a region that peers may map holds all of [pointer, pointer + bytes), sets *offset.
  bool find(const void* pointer, std::size_t bytes, RegionOffset* offset);
  /// The address of `bytes` bytes at `offset` in this process; null if no region holds them.
  std::byte* address(const RegionOffset& offset, std::size_t bytes);
  /// True if the region exists, and peers may map it.
  bool is_offered(std::uint64_t number);
  /// A duplicate of the region's descriptor; empty if peers may not map the region any more.
  UniqueFd descriptor(std::uint64_t number);
  /// Grows whenever a lookup may return another result than before.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  /// Revokes [pointer, pointer + bytes): replaces its pages by private memory with the same bytes,
  /// so that late peers write into pages that this process does not see. From now on the whole
  /// region is staged; of a segment of the shared heap, which has many buffers, only these pages.
  /// If peers still write to another buffer on the same pages, that data is lost; the operation of
  /// that buffer detects this by was_revoked().
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
    bool kept = false;  // freed, and in kept_
    bool of_heap = false;
    // Pages that were revoked: [first, second).
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> taken = {};
  };
  using ByAddress = std::map<std::uintptr_t, Region>;
  static bool is_taken(const Region& region, std::uintptr_t address, std::size_t bytes);
  static bool may_map(const Region& region, std::uintptr_t address, std::size_t bytes) {
    return !region.revoked || (region.of_heap && !is_taken(region, address, bytes));
  }
  ByAddress::iterator holding(std::uintptr_t address, std::size_t bytes);
  ByAddress::iterator numbered(std::uint64_t number);
  Status insert(std::uintptr_t base, Region region, std::uint64_t* number);
  Status insert_locked(std::uintptr_t base, Region region, std::uint64_t* number);
  bool add_segments();
  std::uint64_t next_number();
  Status make(std::size_t size, std::size_t bytes, void** out);
  void* take_kept(std::size_t bytes);
  ByAddress::node_type take_out(ByAddress::iterator region);
  ByAddress::node_type take_out_surplus();
  ByAddress::node_type take_out_oldest();
  bool end_kept();

  std::mutex mutex_;
  ByAddress by_address_;
  std::unordered_map<std::uint64_t, std::uintptr_t> address_of_;  // by number
  // Addresses of kept regions, the one freed longest ago first. Once a region exists, the vector
  // has room for most_kept + 1 elements, so that free() allocates nothing.
  std::vector<std::uintptr_t> kept_;
  std::size_t kept_bytes_ = 0;
  std::uint64_t last_number_ = 0;  // 0: there was no region yet
  std::atomic<std::uint64_t> generation_{1};
  decltype(&hocket_heap_segments) heap_segments_ = nullptr;
  decltype(&hocket_heap_has_private_pages) heap_has_private_pages_ = nullptr;
  std::size_t segments_added_ = 0;
};

}  // namespace hocket::internal
