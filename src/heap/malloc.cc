// malloc and its relatives, with the shared heap for large blocks: what libhocket_heap.so exports.
// Small blocks, and large ones that the heap cannot have, are those of the C library.
//
// Memory may be asked for before any constructor has run. So the heap is made by the first large
// block or by the constructor of the library, whichever comes first, and is never destroyed.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "heap/segments.h"
#include "heap/shared_heap.h"

#define HOCKET_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

using hocket::heap::SharedHeap;

alignas(SharedHeap) std::byte place[sizeof(SharedHeap)];
std::atomic<SharedHeap*> the_heap{nullptr};
pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/// Null: there is no large block yet.
SharedHeap* heap() { return the_heap.load(std::memory_order_acquire); }

void before_fork() {
  if (SharedHeap* const made = heap(); made != nullptr) made->before_fork();
}
void after_fork_in_parent() {
  if (SharedHeap* const made = heap(); made != nullptr) made->after_fork_in_parent();
}
void after_fork_in_child() {
  if (SharedHeap* const made = heap(); made != nullptr) made->after_fork_in_child();
}

SharedHeap& made_heap() {
  if (SharedHeap* const made = heap(); made != nullptr) [[likely]]
    return *made;
  ::pthread_mutex_lock(&making);
  SharedHeap* made = heap();
  if (made == nullptr) {
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    made = new (place) SharedHeap;
    the_heap.store(made, std::memory_order_release);
  }
  ::pthread_mutex_unlock(&making);
  return *made;
}

/// Before the program has threads, one of which could call fork() meanwhile.
__attribute__((constructor)) void make_heap() { made_heap(); }

/// Null: the C library has to allocate the block.
void* allocate(std::size_t bytes, std::size_t alignment, bool zeroed) {
  if (bytes < SharedHeap::least_block_bytes) [[likely]]
    return nullptr;
  return made_heap().allocate(bytes, alignment, zeroed);
}

bool owns(const void* block) {
  const SharedHeap* const made = heap();
  return made != nullptr && made->owns(block);
}

std::size_t usable_bytes_of_libc(void* block) {
  using Function = std::size_t (*)(void*);
  static const auto function = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "malloc_usable_size"));
  return function(block);
}

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

void* aligned(std::size_t alignment, std::size_t bytes) {
  alignment = alignment <= 1 ? 1 : std::bit_ceil(alignment);
  void* const block = allocate(bytes, alignment, false);
  return block != nullptr ? block : __libc_memalign(alignment, bytes);
}

}  // namespace

HOCKET_EXPORT void* malloc(std::size_t bytes) {
  void* const block = allocate(bytes, 1, false);
  return block != nullptr ? block : __libc_malloc(bytes);
}

HOCKET_EXPORT void* calloc(std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  const bool fits = !__builtin_mul_overflow(count, bytes, &all);
  void* const block = fits ? allocate(all, 1, true) : nullptr;
  return block != nullptr ? block : __libc_calloc(count, bytes);
}

HOCKET_EXPORT void free(void* block) {
  if (owns(block)) [[unlikely]]
    return heap()->free(block);
  __libc_free(block);
}

HOCKET_EXPORT void* realloc(void* block, std::size_t bytes) {
  const bool shared = owns(block);
  if (!shared && (block == nullptr || bytes < SharedHeap::least_block_bytes)) {
    return block == nullptr ? malloc(bytes) : __libc_realloc(block, bytes);
  }
  if (bytes == 0) {
    free(block);
    return nullptr;
  }
  if (shared && bytes >= SharedHeap::least_block_bytes && heap()->resize(block, bytes))
    return block;
  const std::size_t old = shared ? heap()->usable_bytes(block) : usable_bytes_of_libc(block);
  if (!shared && old >= bytes) return __libc_realloc(block, bytes);
  void* const moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(old, bytes));
  free(block);
  return moved;
}

HOCKET_EXPORT void* memalign(std::size_t alignment, std::size_t bytes) {
  return aligned(alignment, bytes);
}

HOCKET_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return aligned(alignment, bytes);
}

HOCKET_EXPORT int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) != 0 || !std::has_single_bit(alignment)) return EINVAL;
  const int before = errno;
  void* const block = aligned(alignment, bytes);
  errno = before;
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

HOCKET_EXPORT void* valloc(std::size_t bytes) { return aligned(page_bytes(), bytes); }

HOCKET_EXPORT void* pvalloc(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return aligned(page, bytes > SIZE_MAX - page ? bytes : (bytes + page - 1) / page * page);
}

HOCKET_EXPORT std::size_t malloc_usable_size(void* block) {
  return owns(block) ? heap()->usable_bytes(block) : usable_bytes_of_libc(block);
}

HOCKET_EXPORT std::size_t hocket_heap_segments(hocket_heap_segment* out, std::size_t first,
                                               std::size_t most) {
  SharedHeap* const made = heap();
  return made == nullptr ? 0 : made->segments(out, first, most);
}

HOCKET_EXPORT void hocket_heap_has_private_pages() {
  if (SharedHeap* const made = heap(); made != nullptr) made->has_private_pages();
}
