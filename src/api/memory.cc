#include <unistd.h>

#include "api/handle.h"
#include "api/process.h"

using namespace hocket::internal;

namespace {

Status check_buffer(const hocketComm_t comm, const void* buff, std::size_t size) {
  HOCKET_RETURN_IF_ERROR(api::check(comm));
  if (buff == nullptr) return invalid_argument("buff is NULL");
  if (size == 0 || size > PTRDIFF_MAX) return invalid_argument("size is not a buffer's size");
  return {};
}

Regions& regions() { return api::Process::current().shared.regions; }
api::Registrations& registrations() { return api::Process::current().registrations; }

}  // namespace

hocketResult_t hocketMemAlloc(void** ptr, size_t size) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (ptr == nullptr) return invalid_argument("ptr is NULL");
    *ptr = nullptr;
    if (size == 0) return invalid_argument("size is 0: ask for at least one byte");
    return regions().allocate(size, ptr);
  });
}

hocketResult_t hocketMemFree(void* ptr) {
  if (ptr == nullptr) return hocketSuccess;
  return api::guarded(__func__, nullptr, [&] { return regions().free(ptr); });
}

hocketResult_t hocketCommRegister(const hocketComm_t comm, void* buff, size_t size, void** handle) {
  return api::guarded(__func__, comm, [&]() -> Status {
    if (handle == nullptr) return invalid_argument("handle is NULL");
    *handle = nullptr;
    HOCKET_RETURN_IF_ERROR(check_buffer(comm, buff, size));
    *handle = registrations().add(comm, 0, size);
    return {};
  });
}

hocketResult_t hocketCommRegisterFd(const hocketComm_t comm, void* buff, size_t size, int fd,
                                    int64_t offset, void** handle) {
  return api::guarded(__func__, comm, [&]() -> Status {
    if (handle == nullptr) return invalid_argument("handle is NULL");
    *handle = nullptr;
    HOCKET_RETURN_IF_ERROR(check_buffer(comm, buff, size));
    if (offset < 0 || offset % ::sysconf(_SC_PAGESIZE) != 0) {
      return invalid_argument("offset is " + std::to_string(offset) +
                              ": give a multiple of the page size, as mmap takes");
    }
    std::uint64_t region = 0;
    HOCKET_RETURN_IF_ERROR(
        regions().add(buff, size, fd, static_cast<std::uint64_t>(offset), &region));
    const Status added = status_of_call([&]() -> Status {
      *handle = registrations().add(comm, region, size);
      return {};
    });
    if (!added.ok()) static_cast<void>(regions().remove(region));
    return added;
  });
}

hocketResult_t hocketCommDeregister(const hocketComm_t comm, void* handle) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    return registrations().end(comm, handle);
  });
}

hocketResult_t hocketCommMemoryPath(const hocketComm_t comm, const void* buff, size_t size,
                                    hocketMemoryPath_t* path) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_buffer(comm, buff, size));
    if (path == nullptr) return invalid_argument("path is NULL");
    *path = comm->communicator->is_mapped(buff, size) ? hocketPathMapped : hocketPathStaged;
    return {};
  });
}

hocketResult_t hocketCommMemStats(hocketComm_t comm, hocketCommMemStat_t stat, uint64_t* value) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (value == nullptr) return invalid_argument("value is NULL");
    if (!comm->ready.load(std::memory_order_acquire)) return api::check(comm);
    const Communicator::Memory memory = comm->communicator->memory();
    switch (static_cast<int>(stat)) {
      case hocketStatMemSuspend:
      case hocketStatMemSuspended:
        *value = 0;
        return {};
      case hocketStatMemPersist:
      case hocketStatMemTotal:
        *value = memory.board + memory.scratch;
        return {};
      case hocketStatMemBoard:
        *value = memory.board;
        return {};
      case hocketStatMemFifos:
        *value = memory.fifos;
        return {};
      case hocketStatMemScratch:
        *value = memory.scratch;
        return {};
      case hocketStatMemRegistered:
        *value = registrations().bytes_of(comm);
        return {};
      default:
        break;
    }
    return invalid_argument("stat " + std::to_string(static_cast<int>(stat)) +
                            " does not exist: use a hocketCommMemStat_t");
  });
}
