#include "memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptors.h"
#include "base/signals.h"

namespace hocket::internal {

Mapping::~Mapping() { ::munmap(data_, size_); }

Status Mapping::of(int fd, std::shared_ptr<Mapping>* out) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return invalid_argument(
        "the owner of a shared memory descriptor could shrink it (no F_SEAL_SHRINK), which would "
        "kill processes that read it: seal it with fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return system_error("cannot read the size of a shared memory descriptor");
  if (info.st_size <= 0) return invalid_argument("a shared memory descriptor has size 0");
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return system_error("cannot map " + std::to_string(size) + " bytes of shared memory");
  }
  out->reset(new Mapping(static_cast<std::byte*>(data), size));
  return {};
}

Status Mappings::of(int fd, std::shared_ptr<Mapping>* out) {
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return system_error("cannot read the size of a shared memory descriptor");
  const FileId id{info.st_dev, info.st_ino};
  std::lock_guard lock(mutex_);
  // If the file has grown beyond its mapping, make a second mapping; the first keeps its users.
  if (const auto known = by_file_.find(id); known != by_file_.end()) {
    std::shared_ptr<Mapping> found = known->second.lock();
    if (found != nullptr && found->size() >= static_cast<std::size_t>(info.st_size)) {
      *out = std::move(found);
      return {};
    }
  }
  std::shared_ptr<Mapping> made;
  HOCKET_RETURN_IF_ERROR(Mapping::of(fd, &made));
  std::erase_if(by_file_, [](const auto& entry) { return entry.second.expired(); });
  by_file_[id] = made;
  *out = std::move(made);
  return {};
}

namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

/// The error if a memfd cannot have this size. The file size limit (ulimit -f) applies to
/// shared memory too.
Status no_room(std::size_t bytes) {
  const int error = errno;
  const std::string what = "cannot make shared memory of " + std::to_string(bytes) + " bytes";
  return error != EFBIG ? system_error(what, error)
                        : system_error(what +
                                           ", more than the file size limit (`ulimit -f`) of "
                                           "this process allows: raise that limit",
                                       error);
}

/// With data, the memfd holds these `size` bytes and is sealed against writing.
Status make_sealed(const char* name, std::size_t size, const void* data, UniqueFd* out) {
  UniqueFd fd(
      open_with_room([name] { return ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); }));
  if (!fd) return system_error("cannot make shared memory (memfd_create)");
  const bool sized =
      without_signal(SIGXFSZ, [&] { return ::ftruncate(fd.get(), static_cast<off_t>(size)); }) == 0;
  if (!sized) return no_room(size);
  if (data != nullptr && ::pwrite(fd.get(), data, size, 0) != static_cast<ssize_t>(size)) {
    return no_room(size);
  }
  const int seals = F_SEAL_SEAL | size_seals | (data != nullptr ? F_SEAL_WRITE : 0);
  if (::fcntl(fd.get(), F_ADD_SEALS, seals) != 0) return system_error("cannot seal shared memory");
  *out = std::move(fd);
  return {};
}

}  // namespace

Status make_memfd(const char* name, std::size_t size, UniqueFd* out) {
  return make_sealed(name, size, nullptr, out);
}

Status make_constant_memfd(const char* name, const void* data, std::size_t size, UniqueFd* out) {
  return make_sealed(name, size, data, out);
}

}  // namespace hocket::internal
