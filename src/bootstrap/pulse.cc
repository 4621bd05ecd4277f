#include "bootstrap/pulse.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace hocket {
namespace {
std::size_t page_bytes(int local_ranks) {
  return sizeof(PulseHead) + sizeof(PulseLine) * static_cast<std::size_t>(local_ranks);
}
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;
}  // namespace

PulsePage::~PulsePage() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

Status PulsePage::make(int local_ranks, UniqueFd* fd) {
  UniqueFd made(::memfd_create("hocket-pulse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made) return system_error("memfd_create");
  if (::ftruncate(made.get(), static_cast<off_t>(page_bytes(local_ranks))) != 0) {
    return system_error("ftruncate");
  }
  if (::fcntl(made.get(), F_ADD_SEALS, seals | F_SEAL_SEAL) != 0)
    return system_error("F_ADD_SEALS");
  HOCKET_RETURN_IF_ERROR(map(local_ranks, made));
  *fd = std::move(made);
  return {};
}

Status PulsePage::map(int local_ranks, const UniqueFd& fd) {
  struct stat info {};
  const std::size_t size = page_bytes(local_ranks);
  // A page that its maker could still shrink would be fatal to read.
  if (::fstat(fd.get(), &info) != 0 || static_cast<std::size_t>(info.st_size) != size ||
      (::fcntl(fd.get(), F_GET_SEALS) & seals) != seals) {
    return internal_error("the node's pulse page is not what it should be");
  }
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return system_error("mmap");
  base_ = base;
  size_ = size;
  return {};
}

}  // namespace hocket
