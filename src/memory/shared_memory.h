// Memory that several processes map: made from memfds, so that nothing is named in the file system
// and nothing is left behind. Each memfd is mapped once per process, however many communicators or
// threads ask.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hocket::internal {

/// A mapping of a whole memfd (or other mappable file), unmapped with its last owner.
class Mapping {
 public:
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// The process's one mapping of the file behind fd, made now or shared with an earlier caller: a
  /// second one where the file has grown beyond the first. A file that another process can still
  /// shrink is refused (F_SEAL_SHRINK is missing), for reading it could be fatal.
  static Status of(int fd, std::shared_ptr<Mapping>* out);

 private:
  friend struct MappingTable;
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  std::size_t size_;
};

/// A sealed, zeroed, close-on-exec memfd of size bytes. Pages are taken when touched.
Status make_memfd(const char* name, std::size_t size, UniqueFd* out);
/// A sealed, close-on-exec memfd of these bytes, which nobody can change.
Status make_constant_memfd(const char* name, const void* data, std::size_t size, UniqueFd* out);

}  // namespace hocket::internal
