#include "base/fork.h"

#include <pthread.h>

namespace hocket::internal {

std::atomic<std::uint64_t> forks{0};

namespace {

void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

// Registered when the library is loaded, so that no fork is missed.
[[maybe_unused]] const int counting = ::pthread_atfork(nullptr, nullptr, count_fork);

}  // namespace
}  // namespace hocket::internal
