// Which process this is: what a process made before it forked is not its child's.
#pragma once

#include <atomic>
#include <cstdint>

namespace hocket::internal {

/// Grows in the child of every fork.
extern std::atomic<std::uint64_t> forks;

/// What was made under another number belongs to the parent.
inline std::uint64_t fork_generation() { return forks.load(std::memory_order_relaxed); }

}  // namespace hocket::internal
