// The shared heap: large blocks in memory that local peers can map, for programs whose buffers come
// from malloc. libhocket_heap.so puts it in front of malloc (malloc.cc); libhocket gives its
// segments to the peers (segments.h).
//
// Place. The heap reserves a range of addresses, so that whether a block is its own is one
// comparison. Segments lie in that range one after another; each is a memfd. A page takes memory
// once it is touched. Blocks are whole pages, so that no two blocks share a page: after an error a
// rank takes the pages of a buffer away from its peers.
//
// Free blocks are kept, because the peers have mapped their pages, up to a limit; beyond it their
// pages return to the system. A block without pages is *fresh*: it reads as zeros.
//
// Fork. A child must not share memory with its parent. So fork() copies the blocks that are in use
// into private memory of the child before it returns in the parent. A child that only calls exec
// should come from posix_spawn() or vfork(), which copy nothing.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "heap/segments.h"

namespace hocket::heap {

class SharedHeap {
 public:
  /// Smaller blocks gain nothing from being mapped.
  static constexpr std::size_t least_block_bytes = 16 << 10;
  /// Free pages that are kept: this much, or a quarter of the bytes in use if that is more.
  static constexpr std::size_t most_kept_bytes = std::size_t{256} << 20;

  /// segment_bytes: of the first segment. reserved_bytes: addresses for all segments, but at most a
  /// quarter of those that the process may have (ulimit -v).
  explicit SharedHeap(std::size_t segment_bytes = std::size_t{1} << 30,
                      std::size_t reserved_bytes = std::size_t{16} << 40);
  ~SharedHeap();
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  bool owns(const void* block) const noexcept {
    return reinterpret_cast<std::uintptr_t>(block) - base_ < reserved_bytes_;
  }
  /// A block of at least `bytes` bytes at a multiple of `alignment`, a power of two, and of the
  /// page size. Null if the heap cannot have it; other memory may still be free. zeroed: the block
  /// reads as zeros.
  void* allocate(std::size_t bytes, std::size_t alignment, bool zeroed) noexcept;
  /// Blocks of allocate() only: the process ends if `block` is none.
  void free(void* block) noexcept;
  std::size_t usable_bytes(const void* block) noexcept;
  /// Makes a block shorter or longer, and leaves the block at its address. Returns false and
  /// changes nothing if the memory after the block is in use.
  bool resize(void* block, std::size_t bytes) noexcept;

  /// See segments.h.
  std::size_t segments(hocket_heap_segment* out, std::size_t first, std::size_t most) noexcept;
  void has_private_pages() noexcept { private_pages_.store(true); }

  /// To be called by pthread_atfork handlers.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

  /// Bytes of free blocks that still have pages.
  std::size_t kept_bytes() noexcept;

 private:
  // fresh, bytes, address: of the blocks that are large enough, a search finds the smallest that is
  // not fresh.
  struct Place {
    bool fresh;
    std::size_t bytes;
    std::uintptr_t address;
    auto operator<=>(const Place&) const = default;
  };
  using Places = std::set<Place>;
  struct Block {
    std::size_t bytes;
    bool free;
    bool fresh;               // of a free block
    Places::node_type place;  // of a block in use: so that free() needs no memory
  };
  using Blocks = std::map<std::uintptr_t, Block>;
  struct Segment {
    std::uintptr_t base;
    std::size_t bytes;
    int fd;  // -1: private memory of a forked child
  };
  static constexpr std::size_t most_segments = 64;  // each as large as all before it

  class Lock;
  bool add_segment(std::size_t bytes);
  bool map_segment(std::uintptr_t base, std::size_t bytes, int* fd);
  Blocks::iterator find_free(std::size_t bytes, std::size_t alignment);
  void* take(Blocks::iterator block, std::size_t bytes, std::size_t alignment, bool zeroed);
  Blocks::iterator cut(Blocks::iterator block, std::size_t bytes);
  void set_free(Blocks::iterator block, bool fresh);
  Blocks::iterator merge(Blocks::iterator block);
  void keep(Blocks::iterator block);
  void give_back(Blocks::iterator block);
  Blocks::iterator in_use(const void* block);
  const Segment& segment_of(std::uintptr_t address) const;
  bool open_pipe();
  void close_spare();
  void copy_to(const Segment& segment, std::byte* to) const;

  pthread_mutex_t mutex_;
  const std::size_t page_bytes_;
  std::uintptr_t base_ = 0;
  std::size_t reserved_bytes_ = 0;
  std::size_t first_segment_bytes_;
  std::size_t next_ = 0;  // offset of the next segment
  std::array<Segment, most_segments> segments_{};
  std::size_t segment_count_ = 0;
  Blocks blocks_;
  Places free_;
  std::size_t used_bytes_ = 0, kept_bytes_ = 0;
  std::atomic<bool> private_pages_{false};
  // Two descriptors that before_fork() gives up if the process has none left, and its pipe.
  std::array<int, 2> spare_{-1, -1}, pipe_{-1, -1};
};

}  // namespace hocket::heap
