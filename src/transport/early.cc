#include "transport/early.h"

#include <bit>
#include <cstdlib>
#include <new>

namespace hocket {

EarlyPool::~EarlyPool() {
  for (Idle* idle : idle_) {
    while (idle != nullptr) {
      Idle* const next = idle->next;
      std::free(idle);
      idle = next;
    }
  }
  while (idle_entries_ != nullptr) {
    Early* const next = idle_entries_->next;
    delete idle_entries_;
    idle_entries_ = next;
  }
}

Early* EarlyPool::take(std::size_t bytes) {
  Early* early = idle_entries_;
  if (early != nullptr) {
    idle_entries_ = early->next;
    idle_bytes_ -= sizeof(Early);
    *early = Early{};
  } else {
    early = new (std::nothrow) Early;
    if (early == nullptr) return nullptr;
  }
  if (bytes == 0) return early;
  const int wanted = static_cast<int>(std::bit_width(bytes - 1)) - smallest;
  early->size_class = wanted < 0 ? 0 : wanted;
  if (early->size_class >= classes) {
    early->size_class = -1;
  } else if (Idle* const idle = idle_[early->size_class]; idle != nullptr) {
    idle_[early->size_class] = idle->next;
    idle_bytes_ -= std::size_t{1} << (smallest + early->size_class);
    early->data = reinterpret_cast<std::byte*>(idle);
  } else {
    early->data = static_cast<std::byte*>(
        std::aligned_alloc(64, std::size_t{1} << (smallest + early->size_class)));
  }
  if (early->data == nullptr) {
    early->size_class = -1;
    give(early);
    return nullptr;
  }
  return early;
}

void EarlyPool::give(Early* early) {
  if (early->data != nullptr) {
    const std::size_t bytes = std::size_t{1} << (smallest + early->size_class);
    if (idle_bytes_ + bytes > max_idle_bytes) {
      std::free(early->data);
    } else {
      Idle* const idle = new (early->data) Idle{idle_[early->size_class]};
      idle_[early->size_class] = idle;
      idle_bytes_ += bytes;
    }
  }
  if (idle_bytes_ + sizeof(Early) > max_idle_bytes) {
    delete early;
    return;
  }
  early->next = idle_entries_;
  idle_entries_ = early;
  idle_bytes_ += sizeof(Early);
}

}  // namespace hocket
