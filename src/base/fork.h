// Distinguishes a process from its forked children, which must not use the objects of the parent.
#pragma once

#include <atomic>
#include <cstdint>

namespace hocket::internal {

/// Grows in the child of every fork.
extern std::atomic<std::uint64_t> forks;

/// An object that was made under another number belongs to the parent process.
inline std::uint64_t fork_generation() { return forks.load(std::memory_order_relaxed); }

}  // namespace hocket::internal
