// Memory that local peers access directly, without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hocket/cpp/error.hpp>
#include <hocket/cpp/owner.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace hocket {

/// A fixed number of elements of zeroed memory that local peers map: a contiguous range. Empty
/// after a move. It must outlive the operations that use it; it may outlive communicators.
template <typename T>
class Memory {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "hocket: peers write the bytes of hocket::Memory's elements: they must be "
                "trivially copyable and not const");

 public:
  using value_type = T;

  explicit Memory(std::size_t count) : owner_(allocate(count)), count_(count) {}
  Memory(Memory&& other) noexcept
      : owner_(std::move(other.owner_)), count_(std::exchange(other.count_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    owner_ = std::move(other.owner_);
    if (this != &other) count_ = std::exchange(other.count_, 0);
    return *this;
  }
  ~Memory() = default;

  [[nodiscard]] T* data() noexcept { return static_cast<T*>(owner_.get()); }
  [[nodiscard]] const T* data() const noexcept { return static_cast<const T*>(owner_.get()); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + count_; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + count_; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data()[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data()[index]; }

 private:
  static void* allocate(std::size_t count) {
    if (count > SIZE_MAX / sizeof(T)) {
      throw InvalidArgument("hocketMemAlloc",
                            std::to_string(count) + " elements have more bytes than memory can");
    }
    void* memory = nullptr;
    if (count > 0) check(hocketMemAlloc(&memory, count * sizeof(T)), "hocketMemAlloc");
    return memory;
  }

  detail::Owner<void*, hocketMemFree> owner_;
  std::size_t count_;
};

/// The registration of a range of memory with a communicator; the destructor ends it. The memory
/// must outlive it. If the communicator is destroyed first, the registration ends with the
/// communicator, and the destructor does nothing.
class Registration {
 public:
  Registration(Registration&& other) noexcept
      : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept {
    if (this != &other) {
      end();
      comm_ = other.comm_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Registration() { end(); }

 private:
  friend class Communicator;
  Registration(hocketComm_t comm, void* handle) noexcept : comm_(comm), handle_(handle) {}
  void end() noexcept {
    if (handle_ != nullptr) hocketCommDeregister(comm_, handle_);
  }

  hocketComm_t comm_;
  void* handle_;
};

}  // namespace hocket
