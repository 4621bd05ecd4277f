#include "transport/shm/connection.h"

#include <algorithm>

#include "base/assert.h"
#include "base/checked.h"
#include "base/copy.h"

namespace hocket::internal {
namespace {

constexpr std::size_t least_streamed_bytes = 2 << 10;

/// Without plain_copy(), a short piece of a record is copied by fewer instructions.
void copy_piece(void* to, const void* from, std::size_t bytes) {
  if (bytes < least_streamed_bytes) {
    copy_few(to, from, bytes);
  } else {
    plain_copy(to, from, bytes);
  }
}

/// The thread sanitizer does not support fences: there a read-modify-write of the word gives the
/// same order.
void fence_between([[maybe_unused]] std::atomic<std::uint64_t>* word,
                   [[maybe_unused]] std::memory_order order) {
#if defined(__SANITIZE_THREAD__)
  word->fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(order);
#endif
}

}  // namespace

std::size_t FifoWriter::room(std::size_t wanted) {
  const std::size_t used = mine_ - seen_;
  if (capacity_ - used >= wanted || broken_) return broken_ ? 0 : capacity_ - used;
  const std::uint64_t read = read_->load(std::memory_order_acquire);
  if (read < seen_ || read > mine_ || read % unit_bytes != 0) {
    broken_ = true;
    return 0;
  }
  seen_ = read;
  return capacity_ - (mine_ - seen_);
}

void FifoWriter::put(const void* data, std::size_t bytes, bool non_temporal) {
  HOCKET_ASSERT(mine_ + bytes - seen_ <= capacity_, "the caller has checked room()");
  const std::size_t first = std::min(bytes, capacity_ - position_);
  const bool streams = non_temporal && bytes >= least_streamed_bytes;
  const auto copy = [&](std::byte* to, const std::byte* from, std::size_t count) {
    if (count == 0) return;
    if (streams) {
      stream_copy(to, from, count);
    } else {
      copy_piece(to, from, count);
    }
  };
  const auto* const from = static_cast<const std::byte*>(data);
  copy(ring_ + position_, from, first);
  copy(ring_, from + first, bytes - first);
  position_ = after(position_, bytes);
  mine_ += bytes;
}

void FifoWriter::publish() {
  const std::uint64_t end = round_up(mine_, unit_bytes);
  position_ = after(position_, end - mine_);
  mine_ = end;
  written_->store(mine_, std::memory_order_release);
}

// close() and is_closed() are the two sides of a sequence lock: the writer stores `closed` before
// it changes the memory, and the reader loads `closed` after it has read the memory.
void FifoWriter::close() {
  closed_->store(1, std::memory_order_relaxed);
  fence_between(closed_, std::memory_order_release);
}

bool FifoReader::is_closed() const {
  fence_between(closed_, std::memory_order_acquire);
  return closed_->load(std::memory_order_relaxed) != 0;
}

std::size_t FifoReader::ready() {
  if (broken_) return 0;
  if (seen_ != mine_) return seen_ - mine_;
  const std::uint64_t written = written_->load(std::memory_order_acquire);
  if (written < seen_ || written - released_ > capacity_ || written % unit_bytes != 0) {
    broken_ = true;
    return 0;
  }
  seen_ = written;
  return seen_ - mine_;
}

void FifoReader::get(void* data, std::size_t bytes) {
  HOCKET_ASSERT(bytes <= seen_ - mine_, "the caller has checked ready()");
  const std::size_t first = std::min(bytes, capacity_ - position_);
  if (first > 0) copy_piece(data, ring_ + position_, first);
  if (bytes > first) copy_piece(static_cast<std::byte*>(data) + first, ring_, bytes - first);
  position_ = after(position_, bytes);
  mine_ += bytes;
}

void FifoReader::release() {
  const std::uint64_t end = round_up(mine_, unit_bytes);
  position_ = after(position_, end - mine_);
  mine_ = end;
  // A writer waits only when the ring is full. Then, at one of this reader's releases, more than a
  // quarter of the ring is unread, even if the reader's view of `written` was old before.
  was_full_ |= seen_ - released_ > capacity_ / 4;
  released_ = mine_;
  read_->store(mine_, std::memory_order_release);
}

bool FifoReader::writer_may_wait() {
  const bool was = was_full_;
  was_full_ = false;
  return was;
}

}  // namespace hocket::internal
