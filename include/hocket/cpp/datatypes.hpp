// The datatypes of the C library that the elements of buffers have.
#pragma once

#include <climits>
#include <cstddef>
#include <hocket/cpp/elements.hpp>
#include <hocket/cpp/error.hpp>
#include <span>
#include <type_traits>
#include <utility>

namespace hocket {

/// The size of an element of a datatype, in bytes (hocketTypeSize).
[[nodiscard]] inline std::size_t type_size(hocketDataType_t type) {
  std::size_t bytes = 0;
  check(hocketTypeSize(type, &bytes), "hocketTypeSize");
  return bytes;
}

/// A datatype of n elements of another one, for calls of the C API (hocketTypeCreateContiguous).
class ContiguousType {
 public:
  ContiguousType(int n, hocketDataType_t base) {
    check(hocketTypeCreateContiguous(&type_, n, base), "hocketTypeCreateContiguous");
  }
  ContiguousType(ContiguousType&& other) noexcept
      : type_(std::exchange(other.type_, hocketMaxDataType)) {}
  ContiguousType& operator=(ContiguousType&& other) noexcept {
    std::swap(type_, other.type_);
    return *this;
  }
  ~ContiguousType() {
    if (type_ != hocketMaxDataType) hocketTypeDestroy(type_);
  }
  [[nodiscard]] hocketDataType_t get() const noexcept { return type_; }

 private:
  hocketDataType_t type_ = hocketMaxDataType;
};

namespace detail {

/// The datatype of elements that move as bytes. It exists during a call; the operation keeps what
/// it needs of the datatype. It is not kept for later calls, because a forked child has no
/// datatypes of its parent.
template <typename T>
class ElementBytes {
  static_assert(sizeof(T) <= INT_MAX, "hocket: an element has at most 2147483647 bytes");

 public:
  operator hocketDataType_t() const noexcept { return type_.get(); }  // NOLINT: implicit, for calls

 private:
  ContiguousType type_{static_cast<int>(sizeof(T)), hocketUint8};
};

template <typename T>
auto datatype(std::span<T>) {
  if constexpr (Element<T>) {
    return datatype_of<T>;
  } else {
    return ElementBytes<T>();
  }
}

}  // namespace detail
}  // namespace hocket
