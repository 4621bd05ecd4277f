#include "memory/process_memory.h"

#include <sys/uio.h>

namespace hocket::internal {

std::ptrdiff_t read_process(pid_t process, std::uint64_t address, std::size_t bytes,
                            std::byte* to) {
  const iovec local{.iov_base = to, .iov_len = bytes};
  const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
  return ::process_vm_readv(process, &local, 1, &remote, 1, 0);
}

}  // namespace hocket::internal
