#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/checked.h"

namespace hocket::internal {

/// Page-aligned memory of one owner, which grows to the largest size that was requested.
class ScratchArea {
 public:
  /// Returns at least `bytes` bytes, valid until the next call; null: there is no memory.
  std::byte* of(std::size_t bytes) {
    bytes = std::max<std::size_t>(bytes, 1);  // a message of nothing has a scratch area too
    if (bytes > this->bytes()) {
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, round_up(bytes, 4096))));
      bytes_ = memory_ == nullptr ? 0 : bytes;
    }
    return memory_.get();
  }
  /// The size of the memory now. Any thread may call it.
  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> memory_{nullptr, std::free};
  std::atomic<std::size_t> bytes_ = 0;
};

}  // namespace hocket::internal
