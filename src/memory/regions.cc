#include "memory/regions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>

#include "base/assert.h"
#include "base/checked.h"
#include "base/descriptors.h"

namespace hocket::internal {
namespace {
std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
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
  HOCKET_ASSERT(region.size > 0 && region.fd, "a region has bytes and a file");
  std::lock_guard lock(mutex_);
  const auto next = by_address_.lower_bound(base);
  const bool hits_next = next != by_address_.end() && next->first - base < region.size;
  const bool hits_previous =
      next != by_address_.begin() && base - std::prev(next)->first < std::prev(next)->second.size;
  if (hits_next || hits_previous) {
    return invalid_usage("this memory overlaps a buffer that is registered already");
  }
  region.number = next_number();
  *number = region.number;
  by_address_.emplace(base, std::move(region));
  generation_.fetch_add(1, std::memory_order_release);
  return {};
}

Status Regions::allocate(std::size_t size, void** out) {
  if (size > SIZE_MAX / 2)
    return invalid_argument("size is " + std::to_string(size) + ", but at most " +
                            std::to_string(SIZE_MAX / 2) + " bytes can be allocated");
  const std::size_t bytes = round_up(size == 0 ? 1 : size, page_bytes());
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
  Region region;
  {
    std::lock_guard lock(mutex_);
    const auto found = by_address_.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (found == by_address_.end() || !found->second.allocated) {
      return invalid_argument(
          "ptr did not come from hocketMemAlloc, or was freed before: free each address that "
          "hocketMemAlloc returned once");
    }
    region = std::move(found->second);
    by_address_.erase(found);
    generation_.fetch_add(1, std::memory_order_release);
  }
  ::fallocate(region.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(region.size));
  ::munmap(pointer, region.size);
  return {};
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
  for (auto it = by_address_.begin(); it != by_address_.end(); ++it) {
    if (it->second.number != number || it->second.allocated) continue;
    by_address_.erase(it);
    generation_.fetch_add(1, std::memory_order_release);
    return {};
  }
  return invalid_argument(
      "handle is no registration of this communicator, or it has ended before: end each "
      "registration once");
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
  const auto found = holding(address, bytes);
  if (found == by_address_.end() || found->second.revoked) return false;
  *offset = {found->second.number, found->second.file_offset + (address - found->first)};
  return true;
}

std::byte* Regions::address(const RegionOffset& offset, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  for (const auto& [base, region] : by_address_) {
    if (region.number != offset.region || region.revoked) continue;
    const std::uint64_t skipped = offset.offset - region.file_offset;
    if (offset.offset < region.file_offset || skipped > region.size ||
        bytes > region.size - skipped) {
      return nullptr;
    }
    return reinterpret_cast<std::byte*>(base + skipped);
  }
  return nullptr;
}

UniqueFd Regions::descriptor(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  for (const auto& [address, region] : by_address_) {
    if (region.number == number && !region.revoked) {
      return UniqueFd(::fcntl(region.fd.get(), F_DUPFD_CLOEXEC, 0));
    }
  }
  return {};
}

bool Regions::was_revoked(const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  const auto found = holding(address, bytes);
  if (found == by_address_.end()) return false;
  for (const auto& [begin, end] : found->second.taken) {
    if (begin < address + bytes && address < end) return true;
  }
  return false;
}

Status Regions::revoke(void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  const auto found = holding(address, bytes);
  if (found == by_address_.end() || bytes == 0) return {};
  const std::uintptr_t begin = address & ~(page_bytes() - 1);
  const std::size_t size = round_up(address + bytes, page_bytes()) - begin;
  found->second.revoked = true;
  found->second.taken.emplace_back(begin, begin + size);
  generation_.fetch_add(1, std::memory_order_release);
  void* copy = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED)
    return system_error("cannot revoke a buffer, so late peers may still write into it");
  std::memcpy(copy, reinterpret_cast<void*>(begin), size);
  // mremap replaces the pages in one step: at every moment the address has either the shared pages
  // or the private ones.
  void* moved =
      ::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(begin));
  if (moved == MAP_FAILED)
    return system_error("cannot revoke a buffer, so late peers may still write into it");
  return {};
}

}  // namespace hocket::internal
