#include "memory/regions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/assert.h"
#include "base/checked.h"
#include "base/descriptors.h"

namespace hocket::internal {
namespace {
std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

/// The size of the region for an allocation of `size` bytes: whole pages, at most a quarter more
/// than `size`. Allocations of about the same size get regions of the same size, so that free() and
/// allocate() can hand them on. Pages that the program does not touch take no memory.
std::size_t region_bytes(std::size_t size) {
  const std::size_t bytes = round_up(std::max<std::size_t>(size, 1), page_bytes());
  return round_up(bytes, std::max(page_bytes(), std::bit_floor(bytes) / 4));
}

/// Unmaps a region, and gives its pages back to the system. A peer that still maps the file keeps
/// the mapping, which then has no pages.
void end_memory(std::uintptr_t base, std::size_t bytes, int fd) {
  ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  ::munmap(reinterpret_cast<void*>(base), bytes);
}

using Pages = std::pair<std::uintptr_t, std::uintptr_t>;  // [first, second)

/// Copies pages of a region, whose file has them at `offset`. The kernel reads them from the file:
/// a late peer may store into them meanwhile, and an access of this process would race with it.
/// Those that were revoked before are private memory, which the file does not have.
bool copy_pages(const Pages& pages, std::span<const Pages> revoked, int fd, std::uint64_t offset,
                void* to) {
  const auto is_private = [&](std::uintptr_t page) {
    return std::ranges::any_of(
        revoked, [&](const Pages& taken) { return taken.first <= page && page < taken.second; });
  };
  auto* const copy = static_cast<std::byte*>(to);
  for (std::uintptr_t page = pages.first, end = page; page < pages.second; page = end) {
    const bool own = is_private(page);
    while (end < pages.second && is_private(end) == own) end += page_bytes();
    std::size_t done = page - pages.first;
    if (own) std::memcpy(copy + done, reinterpret_cast<void*>(page), end - page);
    while (!own && done < end - pages.first) {
      const ssize_t got =
          ::pread(fd, copy + done, end - pages.first - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return false;
      if (got == 0) break;  // the file ends within the last page
      done += static_cast<std::size_t>(got);
    }
  }
  return true;
}
}  // namespace

/// Region numbers start at a random value. Two processes in different pid namespaces can have the
/// same pid; then only the number distinguishes a region of a peer from a region of this process.
std::uint64_t Regions::next_number() {
  if (last_number_ == 0) {
    if (::getrandom(&last_number_, sizeof last_number_, GRND_NONBLOCK) < 0) last_number_ = 0;
    last_number_ >>= 1;
  }
  return ++last_number_;
}

Status Regions::insert(std::uintptr_t base, Region region, std::uint64_t* number) {
  std::lock_guard lock(mutex_);
  return insert_locked(base, std::move(region), number);
}

Status Regions::insert_locked(std::uintptr_t base, Region region, std::uint64_t* number) {
  HOCKET_ASSERT(region.size > 0 && region.fd, "a region has bytes and a file");
  const auto next = by_address_.lower_bound(base);
  const bool hits_next = next != by_address_.end() && next->first - base < region.size;
  const bool hits_previous =
      next != by_address_.begin() && base - std::prev(next)->first < std::prev(next)->second.size;
  if (hits_next || hits_previous) {
    return invalid_usage("this memory overlaps a buffer that is registered already");
  }
  region.number = next_number();
  kept_.reserve(most_kept + 1);  // so that free() needs no memory
  *number = region.number;
  address_of_.emplace(region.number, base);
  try {
    by_address_.emplace(base, std::move(region));
  } catch (...) {
    address_of_.erase(*number);
    throw;
  }
  generation_.fetch_add(1, std::memory_order_release);
  return {};
}

Status Regions::allocate(std::size_t size, void** out) {
  if (size > SIZE_MAX / 2)
    return invalid_argument("size is " + std::to_string(size) + ", but at most " +
                            std::to_string(SIZE_MAX / 2) + " bytes can be allocated");
  const std::size_t bytes = region_bytes(size);
  *out = take_kept(bytes);
  if (*out != nullptr) {
    std::memset(*out, 0, round_up(size, page_bytes()));
    return {};
  }
  const Status made = make(size, bytes, out);
  if (made.ok()) return made;
  // Perhaps kept regions hold what is missing, or a limit allows no more than the pages of `size`.
  const std::size_t least = round_up(std::max<std::size_t>(size, 1), page_bytes());
  return end_kept() || least < bytes ? make(size, least, out) : made;
}

/// Allocates a new region.
Status Regions::make(std::size_t size, std::size_t bytes, void** out) {
  UniqueFd fd;
  HOCKET_RETURN_IF_ERROR(make_memfd("hocket-memory", bytes, &fd));
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    return system_error("cannot allocate " + std::to_string(size) + " bytes of shared memory");
  }
  std::uint64_t number = 0;
  const Status inserted = status_of_call([&] {
    return insert(reinterpret_cast<std::uintptr_t>(base),
                  Region{0, bytes, std::move(fd), 0, true, false}, &number);
  });
  if (inserted.ok()) {
    *out = base;
  } else {
    ::munmap(base, bytes);
  }
  return inserted;
}

Status Regions::free(void* pointer) {
  ByAddress::node_type ended;
  {
    std::lock_guard lock(mutex_);
    const auto found = by_address_.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (found == by_address_.end() || !found->second.allocated || found->second.kept) {
      return invalid_argument(
          "ptr did not come from hocketMemAlloc, or was freed before: free each address that "
          "hocketMemAlloc returned once");
    }
    Region& region = found->second;
    if (region.size > most_kept_bytes / 4) {
      ended = take_out(found);
    } else {
      kept_.push_back(found->first);
      kept_bytes_ += region.size;
      region.kept = true;
      ended = take_out_surplus();
    }
  }
  while (!ended.empty()) {
    const Region& region = ended.mapped();
    end_memory(ended.key(), region.size, region.fd.get());
    std::lock_guard lock(mutex_);
    ended = take_out_surplus();
  }
  return {};
}

/// Takes a region of that size out of the kept regions, and returns its address; null if none has
/// that size. Of several it takes the region that was freed last. The memory still has the bytes
/// that the program wrote before it freed the region.
void* Regions::take_kept(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) {
    Region& region = by_address_.find(*kept)->second;
    if (region.size != bytes || region.revoked) continue;
    void* const memory = reinterpret_cast<void*>(*kept);
    kept_.erase(std::prev(kept.base()));
    kept_bytes_ -= bytes;
    region.kept = false;
    return memory;
  }
  return nullptr;
}

/// Takes the region out of the tables.
Regions::ByAddress::node_type Regions::take_out(ByAddress::iterator region) {
  address_of_.erase(region->second.number);
  generation_.fetch_add(1, std::memory_order_release);
  return by_address_.extract(region);
}

/// Ends all kept regions. False: there was none.
bool Regions::end_kept() {
  bool ended = false;
  for (;; ended = true) {
    std::lock_guard lock(mutex_);
    const ByAddress::node_type oldest = take_out_oldest();
    if (oldest.empty()) return ended;
    end_memory(oldest.key(), oldest.mapped().size, oldest.mapped().fd.get());
  }
}

/// Takes out a region if too much is kept; else nothing.
Regions::ByAddress::node_type Regions::take_out_surplus() {
  if (kept_.size() <= most_kept && kept_bytes_ <= most_kept_bytes) return {};
  return take_out_oldest();
}

/// Takes out the kept region that was freed longest ago; nothing if none is kept.
Regions::ByAddress::node_type Regions::take_out_oldest() {
  if (kept_.empty()) return {};
  const auto oldest = by_address_.find(kept_.front());
  kept_.erase(kept_.begin());
  kept_bytes_ -= oldest->second.size;
  return take_out(oldest);
}

Status Regions::add(void* base, std::size_t size, int fd, std::uint64_t offset,
                    std::uint64_t* number) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || ((seals & F_SEAL_SHRINK) == 0 && ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
    return invalid_argument(
        "fd cannot be sealed against shrinking: make it by memfd_create with MFD_ALLOW_SEALING");
  }
  const off_t file_bytes = ::lseek(fd, 0, SEEK_END);
  const auto end = checked_add(offset, size);
  if (file_bytes < 0 || !end || *end > static_cast<std::uint64_t>(file_bytes)) {
    return invalid_argument("offset + size is beyond the end of the file behind fd");
  }
  UniqueFd copy(open_with_room([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
  if (!copy) return system_error("cannot duplicate the descriptor");
  return insert(reinterpret_cast<std::uintptr_t>(base),
                Region{0, size, std::move(copy), offset, false, false}, number);
}

Status Regions::remove(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = numbered(number);
  if (found == by_address_.end() || found->second.allocated) {
    return invalid_argument(
        "handle is no registration of this communicator, or it has ended before: end each "
        "registration once");
  }
  address_of_.erase(number);
  by_address_.erase(found);
  generation_.fetch_add(1, std::memory_order_release);
  return {};
}

void Regions::use_heap(decltype(&hocket_heap_segments) segments,
                       decltype(&hocket_heap_has_private_pages) has_private_pages) {
  std::lock_guard lock(mutex_);
  heap_segments_ = segments;
  heap_has_private_pages_ = has_private_pages;
}

/// Makes regions of the segments that the heap has got since the last call. True: there were some.
/// Without a descriptor for a segment its blocks are staged until a later call has one.
bool Regions::add_segments() {
  bool added = false;
  hocket_heap_segment segment{};
  while (heap_segments_ != nullptr && heap_segments_(&segment, segments_added_, 1) == 1) {
    UniqueFd fd(::fcntl(segment.fd, F_DUPFD_CLOEXEC, 0));
    if (!fd) break;
    Region region{0, segment.bytes, std::move(fd), 0, false, false};
    region.of_heap = true;
    std::uint64_t number = 0;
    // The program may have registered blocks of the segment: then these are the regions.
    static_cast<void>(
        insert_locked(reinterpret_cast<std::uintptr_t>(segment.base), std::move(region), &number));
    ++segments_added_;
    added = true;
  }
  return added;
}

Regions::ByAddress::iterator Regions::numbered(std::uint64_t number) {
  const auto found = address_of_.find(number);
  return found == address_of_.end() ? by_address_.end() : by_address_.find(found->second);
}

Regions::ByAddress::iterator Regions::holding(std::uintptr_t address, std::size_t bytes) {
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return by_address_.end();
  const auto candidate = std::prev(after);
  const std::size_t skipped = address - candidate->first;
  const Region& region = candidate->second;
  if (skipped > region.size || bytes > region.size - skipped) return by_address_.end();
  return candidate;
}

bool Regions::find(const void* pointer, std::size_t bytes, RegionOffset* offset) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  auto found = holding(address, bytes);
  if (found == by_address_.end() && add_segments()) found = holding(address, bytes);
  if (found == by_address_.end() || !may_map(found->second, address, bytes)) return false;
  *offset = {found->second.number, found->second.file_offset + (address - found->first)};
  return true;
}

std::byte* Regions::address(const RegionOffset& offset, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto found = numbered(offset.region);
  if (found == by_address_.end()) return nullptr;
  const Region& region = found->second;
  const std::uint64_t skipped = offset.offset - region.file_offset;
  if (offset.offset < region.file_offset || skipped > region.size ||
      bytes > region.size - skipped || !may_map(region, found->first + skipped, bytes)) {
    return nullptr;
  }
  return reinterpret_cast<std::byte*>(found->first + skipped);
}

bool Regions::is_offered(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = numbered(number);
  return found != by_address_.end() && (!found->second.revoked || found->second.of_heap);
}

UniqueFd Regions::descriptor(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = numbered(number);
  if (found == by_address_.end() || (found->second.revoked && !found->second.of_heap)) return {};
  return UniqueFd(::fcntl(found->second.fd.get(), F_DUPFD_CLOEXEC, 0));
}

bool Regions::was_revoked(const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  const auto found = holding(address, bytes);
  return found != by_address_.end() && is_taken(found->second, address, bytes);
}

bool Regions::is_taken(const Region& region, std::uintptr_t address, std::size_t bytes) {
  return std::ranges::any_of(region.taken, [&](const Pages& taken) {
    return taken.first < address + bytes && address < taken.second;
  });
}

Status Regions::revoke(void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  const auto found = holding(address, bytes);
  if (found == by_address_.end() || bytes == 0) return {};
  const std::uintptr_t begin = address & ~(page_bytes() - 1);
  const std::size_t size = round_up(address + bytes, page_bytes()) - begin;
  Region& region = found->second;
  region.revoked = true;
  region.taken.emplace_back(begin, begin + size);
  generation_.fetch_add(1, std::memory_order_release);
  if (region.of_heap && heap_has_private_pages_ != nullptr) heap_has_private_pages_();
  void* copy = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED)
    return system_error("cannot revoke a buffer, so late peers may still write into it");
  const std::span before = std::span(region.taken).first(region.taken.size() - 1);
  const std::uint64_t offset = region.file_offset + begin - found->first;
  if (!copy_pages({begin, begin + size}, before, region.fd.get(), offset, copy)) {
    const Status status = system_error("cannot read a buffer that peers may still write into");
    ::munmap(copy, size);
    return status;
  }
  // mremap replaces the pages in one step: at every moment the address has either the shared pages
  // or the private ones.
  void* moved =
      ::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(begin));
  if (moved != MAP_FAILED) return {};
  const Status status =
      system_error("cannot revoke a buffer, so late peers may still write into it");
  ::munmap(copy, size);
  return status;
}

}  // namespace hocket::internal
