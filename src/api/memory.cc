#include <unistd.h>

#include <mutex>
#include <set>

#include "api/handle.h"
#include "memory/regions.h"

using namespace hocket::internal;

namespace {

/// What a registration handle points to: where memory is pinned for NICs and GPUs, later.
struct Registration {
  const hocketComm* comm;
  std::uint64_t region;  // 0: without a descriptor
};

/// The registrations that have not ended: a handle is looked up here before it is looked at.
struct Registrations {
  std::mutex mutex;
  std::set<Registration*> live;
  static Registrations& instance() {
    static auto* registrations = new Registrations;
    return *registrations;
  }
  void* add(const hocketComm* comm, std::uint64_t region) {
    std::lock_guard lock(mutex);
    auto made = std::make_unique<Registration>(Registration{comm, region});
    live.insert(made.get());
    return made.release();
  }
  /// Null where it is none of comm's.
  std::unique_ptr<Registration> take(const hocketComm* comm, void* handle) {
    std::lock_guard lock(mutex);
    const auto found = live.find(static_cast<Registration*>(handle));
    if (found == live.end() || (*found)->comm != comm) return nullptr;
    return std::unique_ptr<Registration>(live.extract(found).value());
  }
};

Status check_buffer(const hocketComm_t comm, const void* buff, std::size_t size) {
  HOCKET_RETURN_IF_ERROR(api::check(comm));
  if (buff == nullptr) return invalid_argument("buff is NULL");
  if (size == 0 || size > PTRDIFF_MAX) return invalid_argument("size is not a buffer's size");
  return {};
}

}  // namespace

void api::end_registrations(hocketComm* comm) {
  Registrations& all = Registrations::instance();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.live, [comm](const Registration* one) {
    const bool ends = one->comm == comm;
    if (ends && one->region != 0) {
      [[maybe_unused]] const Status status = Regions::instance().remove(one->region);
    }
    if (ends) delete one;
    return ends;
  });
}

hocketResult_t hocketMemAlloc(void** ptr, size_t size) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (ptr == nullptr) return invalid_argument("ptr is NULL");
    *ptr = nullptr;
    if (size == 0) return invalid_argument("size is 0: ask for at least one byte");
    return Regions::instance().allocate(size, ptr);
  });
}

hocketResult_t hocketMemFree(void* ptr) {
  if (ptr == nullptr) return hocketSuccess;
  return api::guarded(__func__, nullptr, [&] { return Regions::instance().free(ptr); });
}

hocketResult_t hocketCommRegister(const hocketComm_t comm, void* buff, size_t size, void** handle) {
  return api::guarded(__func__, comm, [&]() -> Status {
    if (handle == nullptr) return invalid_argument("handle is NULL");
    *handle = nullptr;
    HOCKET_RETURN_IF_ERROR(check_buffer(comm, buff, size));
    *handle = Registrations::instance().add(comm, 0);
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
        Regions::instance().add(buff, size, fd, static_cast<std::uint64_t>(offset), &region));
    const Status added = status_of_call([&]() -> Status {
      *handle = Registrations::instance().add(comm, region);
      return {};
    });
    if (!added.ok()) static_cast<void>(Regions::instance().remove(region));
    return added;
  });
}

hocketResult_t hocketCommDeregister(const hocketComm_t comm, void* handle) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    const auto registration = Registrations::instance().take(comm, handle);
    if (registration == nullptr) {
      return invalid_argument(
          "this handle did not come from hocketCommRegister on this communicator, or was ended "
          "before");
    }
    if (registration->region == 0) return {};
    return Regions::instance().remove(registration->region);
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
