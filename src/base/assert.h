// Assertions: conditions that must hold inside the library, whatever users, peers and the machine
// do. Debug builds and builds with a sanitizer check them; if one does not hold, they write a text
// and end the process. Release builds do not evaluate them.
//
// An error that a user, a peer or the machine can cause is a Status, never an assertion.
#pragma once

#include <atomic>

namespace hocket::internal {

#ifdef HOCKET_ASSERTS
[[noreturn]] void assertion_failed(const char* condition, const char* meaning, const char* file,
                                   int line) noexcept;
/// meaning: a string literal that says which condition must hold.
#define HOCKET_ASSERT(condition, meaning) \
  ((condition) ? void()                   \
               : ::hocket::internal::assertion_failed(#condition, meaning, __FILE__, __LINE__))
#else
#define HOCKET_ASSERT(condition, meaning) static_cast<void>(sizeof((condition) ? 1 : 0))
#endif

/// Asserts that at most one Scope exists at a time. It orders no memory accesses, so that the
/// thread sanitizer sees the races of the code that it guards.
class Exclusive {
 public:
  class Scope {
   public:
#ifdef HOCKET_ASSERTS
    explicit Scope(Exclusive& exclusive) : exclusive_(exclusive) {
      HOCKET_ASSERT(!exclusive_.held_.exchange(true, std::memory_order_relaxed),
                    "one thread at a time");
    }
    ~Scope() { exclusive_.held_.store(false, std::memory_order_relaxed); }

   private:
    Exclusive& exclusive_;
#else
    explicit Scope(Exclusive&) {}
#endif
   public:
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

#ifdef HOCKET_ASSERTS
  bool held() const { return held_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> held_{false};
#else
  bool held() const { return false; }
#endif
};

}  // namespace hocket::internal
