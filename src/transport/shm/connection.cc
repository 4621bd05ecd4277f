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

std::size_t FifoWriter::look_for_room() {
  if (broken_) return 0;
  const std::uint64_t records = read_->records.load(std::memory_order_acquire);
  const std::uint64_t bytes = read_->bytes.load(std::memory_order_acquire);
  if (records < read_records_ || records > records_ || bytes < read_bytes_ || bytes > bytes_ ||
      bytes % unit_bytes != 0) {
    broken_ = true;
    return 0;
  }
  read_records_ = records;
  read_bytes_ = bytes;
  return records_ - read_records_ < cell_count_ ? capacity_ - (bytes_ - read_bytes_) : 0;
}

void FifoWriter::put(const void* data, std::size_t bytes, bool non_temporal) {
  HOCKET_ASSERT(bytes_ + bytes - read_bytes_ <= capacity_, "the caller has checked room()");
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
  bytes_ += bytes;
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

void FifoReader::get(void* data, std::size_t bytes) {
  HOCKET_ASSERT(bytes <= left_, "the caller has checked left()");
  const std::size_t at = after(position_, in_ring_ - left_);
  const std::size_t first = std::min(bytes, capacity_ - at);
  if (first > 0) copy_piece(data, ring_ + at, first);
  if (bytes > first) copy_piece(static_cast<std::byte*>(data) + first, ring_, bytes - first);
  left_ -= bytes;
}

}  // namespace hocket::internal
