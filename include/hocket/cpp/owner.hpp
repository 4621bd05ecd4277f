// Owner of a C handle.
#pragma once

#include <utility>

namespace hocket::detail {

/// Frees its handle by calling destroy, whose result is ignored.
template <typename Handle, auto destroy>
class Owner {
 public:
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) {
      free();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Owner() { free(); }
  [[nodiscard]] Handle get() const noexcept { return handle_; }

 private:
  void free() noexcept {
    if (handle_ != nullptr) destroy(handle_);
  }

  Handle handle_;
};

}  // namespace hocket::detail
