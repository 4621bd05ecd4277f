#include "training/storage_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "training/storage_failure.h"

namespace hocket::training::storage {

File File::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) system_failure("create", path, errno);
  return {path, descriptor};
}

File File::open(const std::string& path) {
  // A fifo would block without O_NONBLOCK.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) system_failure("open", path, errno);
  File file(path, descriptor);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) system_failure("open", path, errno);
  if (!S_ISREG(status.st_mode)) damaged(path, "it is no regular file");
  return file;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t File::bytes() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) system_failure("read", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::write(const void* data, std::size_t bytes, std::uint64_t offset) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(descriptor_, at, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) system_failure("write", path_, errno);
    at += written;
    bytes -= static_cast<std::size_t>(written);
    offset += static_cast<std::uint64_t>(written);
  }
}

void File::read(void* data, std::size_t bytes, std::uint64_t offset) const {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_failure("read", path_, errno);
    if (got == 0) damaged(path_, fmt::format("it ends at byte {}", offset));
    at += got;
    bytes -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
}

void File::sync_and_close() {
  if (::fsync(descriptor_) != 0) system_failure("write", path_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) system_failure("write", path_, errno);
}

void sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) system_failure("open", path, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems cannot sync a directory, and say EINVAL.
  if (error != 0 && error != EINVAL) system_failure("write", path, error);
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    system_failure(fmt::format("rename '{}' to", from), to, errno);
  }
}

std::string contents_of(const std::string& path, std::uint64_t most_bytes) {
  const File file = File::open(path);
  const std::uint64_t bytes = file.bytes();
  if (bytes > most_bytes) {
    damaged(path, fmt::format("it has {} bytes, and at most {} are allowed", bytes, most_bytes));
  }
  std::string contents(bytes, '\0');
  file.read(contents.data(), contents.size(), 0);
  return contents;
}

void write_file(const std::string& path, const std::string& contents) {
  File file = File::create(path);
  file.write(contents.data(), contents.size(), 0);
  file.sync_and_close();
}

}  // namespace hocket::training::storage
