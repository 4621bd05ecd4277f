#include "base/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/signals.h"
#include "base/unique_fd.h"

namespace hocket::internal {

Status append_file(const std::string& path, std::string_view bytes) {
  constexpr mode_t mode = 0644;
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode));
  if (!file) return system_error("cannot open the file '" + path + "'");
  while (!bytes.empty()) {
    // The signal of the file size limit must not end the process, nor that of a pipe without
    // a reader.
    const ssize_t written = without_signal(SIGXFSZ, [&] {
      return without_signal(SIGPIPE,
                            [&] { return ::write(file.get(), bytes.data(), bytes.size()); });
    });
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write the file '" + path + "'");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace hocket::internal
