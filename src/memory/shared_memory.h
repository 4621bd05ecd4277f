// Memory that several processes map. It is made of memfds, so that it has no name in the file
// system and nothing of it remains after the processes. Each process maps a memfd once, however
// many communicators and threads use it.
#pragma once

#include <cstddef>
#include <memory>

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

  /// Returns the process's mapping of the file behind fd, and makes it if there is none, or if the
  /// file has grown beyond it. Fails if another process can still shrink the file (F_SEAL_SHRINK is
  /// missing): reading beyond its end would kill this process.
  static Status of(int fd, std::shared_ptr<Mapping>* out);

 private:
  friend struct MappingTable;
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  std::size_t size_;
};

/// Makes a sealed, zeroed, close-on-exec memfd of size bytes. A page takes memory once touched.
Status make_memfd(const char* name, std::size_t size, UniqueFd* out);
/// Makes a close-on-exec memfd with these bytes, sealed against any change.
Status make_constant_memfd(const char* name, const void* data, std::size_t size, UniqueFd* out);

}  // namespace hocket::internal
