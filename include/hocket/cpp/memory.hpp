// Memory that local peers access directly, without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hocket/cpp/error.hpp>
#include <hocket/cpp/owner.hpp>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace hocket {

/// A fixed number of elements in zeroed memory that local peers map: a contiguous range. It is
/// empty after a move. It must outlive the operations that use it; it may outlive communicators.
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

/// A standard allocator of memory that local peers map: std::vector<T, hocket::allocator<T>> is a
/// buffer that collectives access without a copy. Each allocation takes whole pages and a file
/// descriptor, so it is for buffers and not for small objects. Memory is aligned to a page. If
/// hocketMemAlloc fails, allocate() throws std::bad_alloc, as containers expect;
/// hocketGetLastError(nullptr) has the sentence.
template <typename T>
class allocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;

  constexpr allocator() noexcept = default;
  template <typename Other>
  constexpr allocator(const allocator<Other>&) noexcept {}  // NOLINT: implicit, as the standard's

  [[nodiscard]] T* allocate(std::size_t count) {
    constexpr std::size_t page = 4096;
    static_assert(alignof(T) <= page, "hocket: memory is aligned to a page, and not to more");
    if (count > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    void* memory = nullptr;
    const std::size_t bytes = count > 0 ? count * sizeof(T) : 1;
    if (hocketMemAlloc(&memory, bytes) != hocketSuccess) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) noexcept { hocketMemFree(memory); }

  template <typename Other>
  constexpr bool operator==(const allocator<Other>&) const noexcept {
    return true;
  }
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
