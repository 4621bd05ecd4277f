// Memory that several processes map. It is made of memfds, so that it has no name in the file
// system and nothing of it remains after the processes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hocket::internal {

/// A mapping of a whole memfd (or other mappable file). The last owner unmaps it.
class Mapping {
 public:
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// Maps the file behind fd. Fails if another process can still shrink the file (F_SEAL_SHRINK is
  /// missing): reading beyond its end would kill this process.
  static Status of(int fd, std::shared_ptr<Mapping>* out);

 private:
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  std::size_t size_;
};

/// The mappings of one process, which maps a file once, however many communicators and threads use
/// it. Process (api/process.h) has one table for all communicators.
class Mappings {
 public:
  Mappings() = default;
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  /// Returns the mapping of the file behind fd. Makes it, as Mapping::of() does, if there is none,
  /// or if the file has grown beyond it.
  Status of(int fd, std::shared_ptr<Mapping>* out);

 private:
  using FileId = std::pair<dev_t, ino_t>;
  std::mutex mutex_;
  std::map<FileId, std::weak_ptr<Mapping>> by_file_;  // under mutex_
};

/// Makes a sealed, zeroed, close-on-exec memfd of size bytes. A page takes memory once touched.
Status make_memfd(const char* name, std::size_t size, UniqueFd* out);
/// Makes a close-on-exec memfd with these bytes, sealed against any change.
Status make_constant_memfd(const char* name, const void* data, std::size_t size, UniqueFd* out);

}  // namespace hocket::internal
