#include "api/handle.h"
#include "memory/regions.h"

using namespace hocket;

namespace {

/// What a registration handle points to: where memory is pinned for NICs and GPUs, later.
struct Registration {
  static constexpr std::uint64_t live = 0x52454749;
  std::uint64_t magic = live;
  std::uint64_t region = 0;  // 0: without a descriptor
};

Status check_buffer(const hocketComm_t comm, const void* buff, std::size_t size) {
  HOCKET_RETURN_IF_ERROR(api::check(comm));
  if (buff == nullptr) return invalid_argument("buff is NULL");
  if (size == 0 || size > PTRDIFF_MAX) return invalid_argument("size is not a buffer's size");
  return {};
}

}  // namespace

hocketResult_t hocketMemAlloc(void** ptr, size_t size) {
  if (ptr == nullptr) return api::result(invalid_argument("ptr is NULL"));
  *ptr = nullptr;
  return api::guarded(nullptr, [&] { return Regions::instance().allocate(size, ptr); });
}

hocketResult_t hocketMemFree(void* ptr) {
  if (ptr == nullptr) return hocketSuccess;
  return api::guarded(nullptr, [&] { return Regions::instance().free(ptr); });
}

hocketResult_t hocketCommRegister(const hocketComm_t comm, void* buff, size_t size, void** handle) {
  return api::guarded(comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_buffer(comm, buff, size));
    if (handle == nullptr) return invalid_argument("handle is NULL");
    *handle = new Registration;
    return {};
  });
}

hocketResult_t hocketCommRegisterFd(const hocketComm_t comm, void* buff, size_t size, int fd,
                                    int64_t offset, void** handle) {
  return api::guarded(comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_buffer(comm, buff, size));
    if (handle == nullptr) return invalid_argument("handle is NULL");
    if (offset < 0) return invalid_argument("offset is negative");
    auto made = std::make_unique<Registration>();
    HOCKET_RETURN_IF_ERROR(
        Regions::instance().add(buff, size, fd, static_cast<std::uint64_t>(offset), &made->region));
    *handle = made.release();
    return {};
  });
}

hocketResult_t hocketCommDeregister(const hocketComm_t comm, void* handle) {
  return api::guarded(comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    auto* registration = static_cast<Registration*>(handle);
    if (registration == nullptr || registration->magic != Registration::live) {
      return invalid_argument("this handle did not come from hocketCommRegister");
    }
    registration->magic = 0;
    Status status;
    if (registration->region != 0) status = Regions::instance().remove(registration->region);
    delete registration;
    return status;
  });
}

hocketResult_t hocketCommMemoryPath(const hocketComm_t comm, const void* buff, size_t size,
                                    hocketMemoryPath_t* path) {
  return api::guarded(comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_buffer(comm, buff, size));
    if (path == nullptr) return invalid_argument("path is NULL");
    *path = comm->communicator->is_mapped(buff, size) ? hocketPathMapped : hocketPathStaged;
    return {};
  });
}
