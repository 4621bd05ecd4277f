#include "transport/unexpected.h"

#include <bit>
#include <cstdlib>
#include <new>

#include "base/assert.h"

namespace hocket::internal {

void SequenceOrder::add(UnexpectedMessage& unexpected) {
  UnexpectedMessage* before = last_;
  while (before != nullptr && before->key.sequence > unexpected.key.sequence)
    before = before->before;
  unexpected.before = before;
  unexpected.after = before != nullptr ? before->after : first_;
  (unexpected.before != nullptr ? unexpected.before->after : first_) = &unexpected;
  (unexpected.after != nullptr ? unexpected.after->before : last_) = &unexpected;
}

void SequenceOrder::remove(UnexpectedMessage& unexpected) {
  HOCKET_ASSERT(unexpected.before != nullptr || first_ == &unexpected, "the message is listed");
  (unexpected.before != nullptr ? unexpected.before->after : first_) = unexpected.after;
  (unexpected.after != nullptr ? unexpected.after->before : last_) = unexpected.before;
  unexpected.before = unexpected.after = nullptr;
}

UnexpectedPool::~UnexpectedPool() {
  for (Idle* idle : idle_) {
    while (idle != nullptr) {
      Idle* const next = idle->next;
      std::free(idle);
      idle = next;
    }
  }
  while (idle_entries_ != nullptr) {
    UnexpectedMessage* const next = idle_entries_->next;
    delete idle_entries_;
    idle_entries_ = next;
  }
}

UnexpectedMessage* UnexpectedPool::take(std::size_t bytes) {
  UnexpectedMessage* unexpected = idle_entries_;
  if (unexpected != nullptr) {
    idle_entries_ = unexpected->next;
    idle_bytes_ -= sizeof(UnexpectedMessage);
    *unexpected = UnexpectedMessage{};
  } else {
    unexpected = new (std::nothrow) UnexpectedMessage;
    if (unexpected == nullptr) return nullptr;
  }
  if (bytes == 0) return unexpected;
  const int wanted = static_cast<int>(std::bit_width(bytes - 1)) - smallest;
  unexpected->size_class = wanted < 0 ? 0 : wanted;
  if (unexpected->size_class >= classes) {
    unexpected->size_class = -1;
  } else if (Idle* const idle = idle_[unexpected->size_class]; idle != nullptr) {
    idle_[unexpected->size_class] = idle->next;
    idle_bytes_ -= std::size_t{1} << (smallest + unexpected->size_class);
    unexpected->data = reinterpret_cast<std::byte*>(idle);
  } else {
    unexpected->data = static_cast<std::byte*>(
        std::aligned_alloc(64, std::size_t{1} << (smallest + unexpected->size_class)));
  }
  if (unexpected->data == nullptr) {
    unexpected->size_class = -1;
    give(unexpected);
    return nullptr;
  }
  return unexpected;
}

void UnexpectedPool::give(UnexpectedMessage* unexpected) {
  HOCKET_ASSERT(unexpected->data == nullptr ||
                    (unexpected->size_class >= 0 && unexpected->size_class < classes),
                "memory goes back to the class that it came from");
  if (unexpected->data != nullptr) {
    const std::size_t bytes = std::size_t{1} << (smallest + unexpected->size_class);
    if (idle_bytes_ + bytes > max_idle_bytes) {
      std::free(unexpected->data);
    } else {
      Idle* const idle = new (unexpected->data) Idle{idle_[unexpected->size_class]};
      idle_[unexpected->size_class] = idle;
      idle_bytes_ += bytes;
    }
  }
  if (idle_bytes_ + sizeof(UnexpectedMessage) > max_idle_bytes) {
    delete unexpected;
    return;
  }
  unexpected->next = idle_entries_;
  idle_entries_ = unexpected;
  idle_bytes_ += sizeof(UnexpectedMessage);
}

}  // namespace hocket::internal
