#include "heap/shared_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "heap/wrong_pointer.h"

namespace hocket::heap {
namespace {

constexpr std::size_t huge_page_bytes = 2 << 20;
constexpr std::size_t least_reserved_bytes = 1 << 30;
constexpr int standard_streams = 3;  // descriptors 0 to 2

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) & ~(unit - 1);
}

/// A program that was started with closed standard streams would write to the descriptor that has
/// the number of such a stream. Closes the descriptor and returns -1 if there is no other.
int beyond_standard_streams(int fd) {
  if (fd < 0 || fd >= standard_streams) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, standard_streams);
  ::close(fd);
  return moved;
}

void* pages_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

/// The caller keeps its errno.
class SharedHeap::Lock {
 public:
  explicit Lock(SharedHeap& heap) : mutex_(heap.mutex_) { ::pthread_mutex_lock(&mutex_); }
  ~Lock() {
    ::pthread_mutex_unlock(&mutex_);
    errno = errno_;
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
  const int errno_ = errno;
};

SharedHeap::SharedHeap(std::size_t segment_bytes, std::size_t reserved_bytes)
    // Recursive: a handler of fork may allocate after before_fork().
    : mutex_(PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP),
      page_bytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
      first_segment_bytes_(segment_bytes) {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    const std::size_t share = addresses.rlim_cur / 4 / huge_page_bytes * huge_page_bytes;
    reserved_bytes = std::min(reserved_bytes, share);
  }
  for (std::size_t bytes = reserved_bytes; bytes >= least_reserved_bytes; bytes /= 4) {
    void* const range =
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    base_ = reinterpret_cast<std::uintptr_t>(range);
    reserved_bytes_ = bytes;
    return;
  }
}

SharedHeap::~SharedHeap() {
  for (std::size_t i = 0; i < segment_count_; ++i) {
    if (segments_[i].fd >= 0) ::close(segments_[i].fd);
  }
  close_spare();
  if (reserved_bytes_ > 0) ::munmap(pages_at(base_), reserved_bytes_);
}

// ---- Segments

/// Maps a new memfd there. It is closed in programs that this process starts.
bool SharedHeap::map_segment(std::uintptr_t base, std::size_t bytes, int* fd) {
  rlimit longest{};  // a longer file would raise a signal
  if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur < bytes) return false;
  *fd = beyond_standard_streams(::memfd_create("hocket-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (*fd < 0) return false;
  if (::ftruncate(*fd, static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
      ::mmap(pages_at(base), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *fd, 0) !=
          MAP_FAILED) {
    return true;
  }
  ::close(*fd);
  return false;
}

/// Makes a segment for a block of `bytes` bytes. The new segment is as long as all earlier segments
/// together, so that a process needs few segments, however much memory it has.
bool SharedHeap::add_segment(std::size_t bytes) {
  if (segment_count_ == most_segments) return false;
  std::size_t length = std::max({round_up(bytes, huge_page_bytes), first_segment_bytes_, next_});
  const std::uintptr_t base = base_ + next_;
  int fd = -1;
  bool made = length <= reserved_bytes_ - next_ && map_segment(base, length, &fd);
  if (!made) {  // a limit may allow a shorter segment
    length = round_up(bytes, huge_page_bytes);
    made = length <= reserved_bytes_ - next_ && map_segment(base, length, &fd);
  }
  if (!made) return false;
  for (int& spare : spare_) {
    if (spare < 0) spare = ::fcntl(fd, F_DUPFD_CLOEXEC, standard_streams);
  }
  segments_[segment_count_++] = {base, length, fd};
  next_ += length;
  const Blocks::iterator block = blocks_.emplace(base, Block{length, true, true, {}}).first;
  free_.insert(Place{true, length, block->first});
  return true;
}

const SharedHeap::Segment& SharedHeap::segment_of(std::uintptr_t address) const {
  const auto end = segments_.begin() + static_cast<std::ptrdiff_t>(segment_count_);
  const auto after = std::upper_bound(
      segments_.begin(), end, address,
      [](std::uintptr_t place, const Segment& segment) { return place < segment.base; });
  return *std::prev(after);
}

std::size_t SharedHeap::segments(hocket_heap_segment* out, std::size_t first,
                                 std::size_t most) noexcept {
  const Lock lock(*this);
  std::size_t copied = 0;
  for (std::size_t i = 0; i < segment_count_ && copied < most; ++i) {
    const Segment& segment = segments_[i];
    if (segment.fd < 0) continue;
    if (first > 0) {
      --first;
      continue;
    }
    out[copied++] = {pages_at(segment.base), segment.bytes, segment.fd};
  }
  return copied;
}

// ---- Blocks

void* SharedHeap::allocate(std::size_t bytes, std::size_t alignment, bool zeroed) noexcept {
  if (bytes == 0 || bytes > reserved_bytes_ || alignment > reserved_bytes_) return nullptr;
  bytes = round_up(bytes, page_bytes_);
  alignment = std::max(alignment, page_bytes_);
  const Lock lock(*this);
  try {
    Blocks::iterator block = find_free(bytes, alignment);
    if (block == blocks_.end()) {
      if (!add_segment(bytes + alignment - page_bytes_)) return nullptr;
      block = find_free(bytes, alignment);
    }
    return take(block, bytes, alignment, zeroed);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

/// The smallest free block in which `bytes` bytes fit; blocks with pages come first.
SharedHeap::Blocks::iterator SharedHeap::find_free(std::size_t bytes, std::size_t alignment) {
  const std::size_t enough = bytes + alignment - page_bytes_;
  for (const bool fresh : {false, true}) {
    const auto found = free_.lower_bound(Place{fresh, enough, 0});
    if (found != free_.end() && found->fresh == fresh) return blocks_.find(found->address);
  }
  return blocks_.end();
}

/// Takes an aligned part out of a free block that is long enough for it.
void* SharedHeap::take(Blocks::iterator block, std::size_t bytes, std::size_t alignment,
                       bool zeroed) {
  const std::size_t before = round_up(block->first, alignment) - block->first;
  if (before > 0) block = cut(block, before);
  if (block->second.bytes > bytes) cut(block, bytes);
  Block& taken = block->second;
  taken.place = free_.extract(Place{taken.fresh, taken.bytes, block->first});
  taken.free = false;
  used_bytes_ += bytes;
  if (!taken.fresh) kept_bytes_ -= bytes;
  void* const memory = pages_at(block->first);
  if (zeroed && !taken.fresh) std::memset(memory, 0, bytes);
  return memory;
}

/// Cuts a free block, or one in use, after `bytes` bytes, and returns the rest, which is free.
SharedHeap::Blocks::iterator SharedHeap::cut(Blocks::iterator block, std::size_t bytes) {
  Block& first = block->second;
  const bool fresh = first.free && first.fresh;
  const std::uintptr_t address = block->first + bytes;
  const std::size_t rest = first.bytes - bytes;
  const auto place = free_.insert(Place{fresh, rest, address}).first;
  Blocks::iterator second;
  try {
    second = blocks_.emplace(address, Block{rest, true, fresh, {}}).first;
  } catch (const std::bad_alloc&) {
    free_.erase(place);
    throw;
  }
  if (first.free) {
    Places::node_type node = free_.extract(Place{fresh, first.bytes, block->first});
    node.value().bytes = bytes;
    free_.insert(std::move(node));
  }
  first.bytes = bytes;
  return second;
}

SharedHeap::Blocks::iterator SharedHeap::in_use(const void* block) {
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(block));
  if (found == blocks_.end() || found->second.free) {
    end_process(
        "hocket's shared heap: free() or realloc() of a pointer that is no block in use: it was "
        "freed before, or points into a block\n");
  }
  return found;
}

void SharedHeap::free(void* block) noexcept {
  const Lock lock(*this);
  const Blocks::iterator freed = in_use(block);
  used_bytes_ -= freed->second.bytes;
  kept_bytes_ += freed->second.bytes;
  set_free(freed, false);
  keep(merge(freed));
}

/// Keeps the pages of a free block, unless the heap has more than the limit then.
void SharedHeap::keep(Blocks::iterator block) {
  if (kept_bytes_ > std::max(most_kept_bytes, used_bytes_ / 4)) give_back(block);
}

/// Needs no memory.
void SharedHeap::set_free(Blocks::iterator block, bool fresh) {
  Block& freed = block->second;
  freed.free = true;
  freed.fresh = fresh;
  freed.place.value() = {fresh, freed.bytes, block->first};
  free_.insert(std::move(freed.place));
}

/// Joins a free block with those before and after it that are like it, and returns it.
SharedHeap::Blocks::iterator SharedHeap::merge(Blocks::iterator block) {
  const auto joins = [this](Blocks::iterator first, Blocks::iterator second) {
    if (!first->second.free || !second->second.free ||
        first->second.fresh != second->second.fresh ||
        segment_of(first->first).base != segment_of(second->first).base) {
      return false;
    }
    const bool fresh = first->second.fresh;
    Places::node_type node = free_.extract(Place{fresh, first->second.bytes, first->first});
    free_.erase(Place{fresh, second->second.bytes, second->first});
    first->second.bytes += second->second.bytes;
    blocks_.erase(second);
    node.value().bytes = first->second.bytes;
    free_.insert(std::move(node));
    return true;
  };
  if (const auto next = std::next(block); next != blocks_.end()) joins(block, next);
  if (block == blocks_.begin()) return block;
  const auto previous = std::prev(block);
  return joins(previous, block) ? previous : block;
}

/// Returns the pages of a free block to the system.
void SharedHeap::give_back(Blocks::iterator block) {
  const Segment& segment = segment_of(block->first);
  const std::size_t bytes = block->second.bytes;
  if (segment.fd >= 0 && ::fallocate(segment.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                     static_cast<off_t>(block->first - segment.base),
                                     static_cast<off_t>(bytes)) != 0) {
    return;
  }
  if (::madvise(pages_at(block->first), bytes, MADV_DONTNEED) != 0) return;
  block->second.place = free_.extract(Place{false, bytes, block->first});
  set_free(block, true);
  kept_bytes_ -= bytes;
  merge(block);
}

std::size_t SharedHeap::usable_bytes(const void* block) noexcept {
  const Lock lock(*this);
  return in_use(block)->second.bytes;
}

bool SharedHeap::resize(void* block, std::size_t bytes) noexcept {
  if (bytes == 0 || bytes > reserved_bytes_) return false;
  bytes = round_up(bytes, page_bytes_);
  const Lock lock(*this);
  const Blocks::iterator old = in_use(block);
  const std::size_t before = old->second.bytes;
  try {
    if (bytes > before) {
      const auto next = std::next(old);
      if (next == blocks_.end() || !next->second.free || next->second.bytes < bytes - before ||
          segment_of(next->first).base != segment_of(old->first).base) {
        return false;
      }
      if (next->second.bytes > bytes - before) cut(next, bytes - before);
      free_.erase(Place{next->second.fresh, next->second.bytes, next->first});
      if (!next->second.fresh) kept_bytes_ -= next->second.bytes;
      blocks_.erase(next);
      old->second.bytes = bytes;
    } else if (bytes < before) {
      const Blocks::iterator rest = cut(old, bytes);
      used_bytes_ -= before - bytes;
      kept_bytes_ += before - bytes;
      keep(merge(rest));
      return true;
    }
  } catch (const std::bad_alloc&) {
    return bytes < before;  // longer than asked is no error
  }
  used_bytes_ += bytes - before;
  return true;
}

std::size_t SharedHeap::kept_bytes() noexcept {
  const Lock lock(*this);
  return kept_bytes_;
}

// ---- Fork

void SharedHeap::before_fork() noexcept {
  ::pthread_mutex_lock(&mutex_);
  if (segment_count_ == 0 || open_pipe()) return;
  close_spare();
  open_pipe();
}

void SharedHeap::close_spare() {
  for (int& spare : spare_) {
    if (spare >= 0) ::close(std::exchange(spare, -1));
  }
}

bool SharedHeap::open_pipe() {
  if (::pipe2(pipe_.data(), O_CLOEXEC) == 0) {
    for (int& end : pipe_) end = beyond_standard_streams(end);
    if (pipe_[0] >= 0 && pipe_[1] >= 0) return true;
    for (const int end : pipe_) {
      if (end >= 0) ::close(end);
    }
  }
  pipe_ = {-1, -1};
  return false;
}

/// Waits until the child has its copy, or has ended: then no process writes to the other end.
void SharedHeap::after_fork_in_parent() noexcept {
  if (pipe_[0] >= 0) {
    ::close(pipe_[1]);
    std::byte ignored;
    while (::read(pipe_[0], &ignored, 1) < 0 && errno == EINTR) {
    }
    ::close(pipe_[0]);
    pipe_ = {-1, -1};
    for (int& spare : spare_) {
      if (spare < 0) spare = ::fcntl(segments_[0].fd, F_DUPFD_CLOEXEC, standard_streams);
    }
  }
  ::pthread_mutex_unlock(&mutex_);
}

/// The child has one thread, and the lock of its parent.
void SharedHeap::after_fork_in_child() noexcept {
  mutex_ = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  for (std::size_t i = 0; i < segment_count_; ++i) {
    Segment& segment = segments_[i];
    if (segment.fd < 0) continue;  // of a parent of this parent: private already
    void* const copy = ::mmap(nullptr, segment.bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (copy == MAP_FAILED)
      end_process(
          "hocket's shared heap: no memory for the copy that a child of fork() needs. Start "
          "programs by posix_spawn() instead\n");
    copy_to(segment, static_cast<std::byte*>(copy));
    if (::mremap(copy, segment.bytes, segment.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                 pages_at(segment.base)) == MAP_FAILED) {
      end_process(
          "hocket's shared heap: a child of fork() cannot replace the memory of its parent\n");
    }
    ::close(std::exchange(segment.fd, -1));
  }
  close_spare();
  if (pipe_[0] >= 0) {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
    pipe_ = {-1, -1};
  }
}

/// Copies the blocks of a segment that are in use. Parts that the file does not have are zeros, and
/// reading them would give them pages.
void SharedHeap::copy_to(const Segment& segment, std::byte* to) const {
  const std::uintptr_t end = segment.base + segment.bytes;
  for (auto block = blocks_.lower_bound(segment.base); block != blocks_.end() && block->first < end;
       ++block) {
    if (block->second.free) continue;
    const std::size_t first = block->first - segment.base, last = first + block->second.bytes;
    for (std::size_t at = first; at < last;) {
      std::size_t hole = last;
      if (!private_pages_.load()) {
        const off_t data = ::lseek(segment.fd, static_cast<off_t>(at), SEEK_DATA);
        if (data < 0 || static_cast<std::size_t>(data) >= last) break;  // no data up to the end
        at = static_cast<std::size_t>(data);
        const off_t next = ::lseek(segment.fd, data, SEEK_HOLE);
        if (next >= 0) hole = std::min(last, static_cast<std::size_t>(next));
      }
      std::memcpy(to + at, pages_at(segment.base + at), hole - at);
      at = hole;
    }
  }
}

}  // namespace hocket::heap
