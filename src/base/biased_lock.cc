#include "base/biased_lock.h"

#include "base/membarrier.h"

namespace hocket::internal {
namespace {

bool has_membarrier() {
  static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return registered;
}

}  // namespace

BiasedLock::Hold BiasedLock::exchange(std::uintptr_t self) {
  if (held_.exchange(true, std::memory_order_acquire)) return Hold::none;
  const std::uintptr_t biased_to = biased_to_.load(std::memory_order_relaxed);
  if (biased_to == ended) return Hold::exchanged;
  if (biased_to == unused) {
    biased_to_.store(has_membarrier() ? self : ended, std::memory_order_relaxed);
    return Hold::exchanged;
  }
  if (against_bias_ == most_against_bias) biased_to_.store(ended, std::memory_order_relaxed);
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
      !held_by_bias_.load(std::memory_order_acquire)) {
    ++against_bias_;
    return Hold::exchanged;
  }
  biased_to_.store(biased_to, std::memory_order_relaxed);
  held_.store(false, std::memory_order_release);
  return Hold::none;
}

}  // namespace hocket::internal
