// A fifo: records from a process, the writer, to another, the reader. A cell of one cache line
// announces each record, so a short record moves no other line between the two processes. Both can
// write to the shared memory, so neither trusts the other: each checks positions, and the reader
// copies a header before it parses it. Offsets in bytes:
//
//   0     closed:  not 0 if the writer's transfers have ended with an error; only the writer
//                  changes it
//   128   read:    how much was ever read, records and bytes of the ring; only the reader changes
//                  it
//   256   cells of 64 bytes: record n has cell n modulo their number. They take an eighth of the
//         fifo, and there are at least 64
//         the ring: the rest of each record, in order, each from a multiple of 64 on
//
// A new fifo is all zero bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/assert.h"

namespace hocket::internal {

class Fifo {
 public:
  static constexpr std::size_t line_bytes = 128;
  static constexpr std::size_t unit_bytes = 64;
  static constexpr std::size_t lead_bytes = 56;  // of a record, in its cell
  static constexpr std::uint64_t least_cells = 64;
  /// Of a fifo with so many bytes: a power of two.
  static constexpr std::uint64_t cells_of(std::size_t bytes) {
    return std::max(least_cells, std::bit_floor(bytes / 8 / unit_bytes));
  }
  /// Of the ring.
  static constexpr std::size_t offset_of_ring(std::size_t bytes) {
    return 2 * line_bytes + cells_of(bytes) * unit_bytes;
  }

  Fifo(std::byte* base, std::size_t bytes)
      : closed_(reinterpret_cast<std::atomic<std::uint64_t>*>(base)),
        read_(reinterpret_cast<Position*>(base + line_bytes)),
        cells_(reinterpret_cast<Cell*>(base + 2 * line_bytes)),
        cell_count_(cells_of(bytes)),
        lap_shift_(std::countr_zero(cell_count_)),
        ring_(base + offset_of_ring(bytes)),
        capacity_((bytes - offset_of_ring(bytes)) / unit_bytes * unit_bytes) {
    HOCKET_ASSERT(bytes > offset_of_ring(bytes), "a fifo has room for a ring");
    HOCKET_ASSERT(bytes >> 24 == 0, "a word of a cell has 24 bits for bytes");
  }

 protected:
  struct Position {
    std::atomic<std::uint64_t> records;
    std::atomic<std::uint64_t> bytes;  // of the ring, with padding
  };
  /// The word is written last. From its lowest bit: 32 bits 1 + n / cells of record n; 8 bits the
  /// kind of the record, which the caller chooses; 24 bits the bytes that the record has in the
  /// ring.
  struct alignas(unit_bytes) Cell {
    std::atomic<std::uint64_t> word;
    std::byte lead[lead_bytes];
  };
  static_assert(sizeof(Cell) == unit_bytes);

  std::uint32_t lap_of(std::uint64_t record) const {
    return static_cast<std::uint32_t>(1 + (record >> lap_shift_));
  }
  Cell& cell_of(std::uint64_t record) const { return cells_[record & (cell_count_ - 1)]; }
  /// Returns the offset in the ring that is `bytes` after `position`.
  std::size_t after(std::size_t position, std::size_t bytes) const {
    position += bytes;
    return position >= capacity_ ? position - capacity_ : position;
  }

  std::atomic<std::uint64_t>* closed_;
  Position* read_;
  Cell* cells_;
  std::uint64_t cell_count_;
  int lap_shift_;
  std::byte* ring_;
  std::size_t capacity_;
};

class FifoWriter : public Fifo {
 public:
  using Fifo::Fifo;
  /// Bytes of the ring that the next record can have. 0: it must wait. Looks at the reader's
  /// position only if that is less than `wanted`, at least 1. Returns 0 and sets broken() if the
  /// position is impossible.
  std::size_t room(std::size_t wanted) {
    const std::size_t free = capacity_ - (bytes_ - read_bytes_);
    if (free >= wanted && records_ - read_records_ < cell_count_ && !broken_) [[likely]]
      return free;
    return look_for_room();
  }
  bool broken() const { return broken_; }
  /// Copies bytes to the ring, as the next part of the record. The caller has checked room().
  /// non_temporal: stores 2 KiB and more past the caches.
  void put(const void* data, std::size_t bytes, bool non_temporal = false);
  /// The same for an object, whose size the compiler knows.
  template <typename Object>
  void put(const Object& object) {
    HOCKET_ASSERT(bytes_ + sizeof object - read_bytes_ <= capacity_, "the caller has checked room");
    if (capacity_ - position_ < sizeof object) return put(&object, sizeof object);
    std::memcpy(ring_ + position_, &object, sizeof object);
    position_ = after(position_, sizeof object);
    bytes_ += sizeof object;
  }
  /// The lead of the record: the caller writes it before it publishes the record.
  std::byte* lead() const { return cell_of(records_).lead; }
  /// Ends the record and publishes it to the reader.
  void publish(std::uint8_t kind) {
    const std::uint64_t in_ring = bytes_ - begun_;
    cell_of(records_).word.store(lap_of(records_) | std::uint64_t{kind} << 32 | in_ring << 40,
                                 std::memory_order_release);
    ++records_;
    if (in_ring == 0) return;
    const std::uint64_t padding = (unit_bytes - in_ring % unit_bytes) % unit_bytes;
    position_ = after(position_, padding);
    bytes_ += padding;
    begun_ = bytes_;
  }
  /// Tells the reader that this process may now write to the memory whose locations it has sent.
  void close();

 private:
  std::size_t look_for_room();

  std::uint64_t records_ = 0;                        // published
  std::uint64_t bytes_ = 0;                          // put in the ring, published or not
  std::uint64_t begun_ = 0;                          // bytes_ when the record began
  std::uint64_t read_records_ = 0, read_bytes_ = 0;  // last values read from read_
  std::size_t position_ = 0;
  bool broken_ = false;
};

class FifoReader : public Fifo {
 public:
  using Fifo::Fifo;
  /// True if there is a record to read. Returns false and sets broken() if the writer has written
  /// an impossible word.
  bool ready() {
    const std::uint64_t word = cell_of(records_).word.load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(word) != lap_of(records_) || broken_) {
      broken_ |= static_cast<std::uint32_t>(word) != lap_of(records_) - 1;
      return false;
    }
    kind_ = static_cast<std::uint8_t>(word >> 32);
    in_ring_ = left_ = word >> 40;
    broken_ = in_ring_ > capacity_;
    return !broken_;
  }
  bool broken() const { return broken_; }
  /// Of the record: its kind, and the bytes in the ring that were not taken yet.
  std::uint8_t kind() const { return kind_; }
  std::size_t left() const { return left_; }
  /// The lead of the record. The peer can change it at any time.
  const std::byte* lead() const { return cell_of(records_).lead; }
  /// Copies the next bytes of the record in the ring; the caller has checked left().
  void get(void* data, std::size_t bytes);
  /// The same for an object, whose size the compiler knows.
  template <typename Object>
  void get(Object* object) {
    HOCKET_ASSERT(sizeof *object <= left_, "the caller has checked left()");
    const std::size_t at = after(position_, in_ring_ - left_);
    if (capacity_ - at < sizeof *object) return get(object, sizeof *object);
    std::memcpy(object, ring_ + at, sizeof *object);
    left_ -= sizeof *object;
  }
  /// Ends the reading of the record: from now on the writer may overwrite its cell and its bytes.
  void release() {
    ++records_;
    if (in_ring_ > 0) {
      const std::size_t padded = (in_ring_ + unit_bytes - 1) / unit_bytes * unit_bytes;
      position_ = after(position_, padded);
      bytes_ += padded;
      read_->bytes.store(bytes_, std::memory_order_release);
    }
    read_->records.store(records_, std::memory_order_release);
  }
  /// True if bytes that the caller has copied from a location may be other bytes than the writer's
  /// message, because the writer has closed the fifo.
  bool is_closed() const;
  /// True if this reader has released a quarter of the cells or of the ring since this function
  /// last returned true. A writer that waits for room can then write its next record.
  bool writer_may_go_on() {
    if (records_ - told_records_ < cell_count_ / 4 && bytes_ - told_bytes_ < capacity_ / 4)
      return false;
    told_records_ = records_;
    told_bytes_ = bytes_;
    return true;
  }

 private:
  std::uint64_t records_ = 0, bytes_ = 0;            // released
  std::uint64_t told_records_ = 0, told_bytes_ = 0;  // writer_may_go_on()
  std::uint64_t in_ring_ = 0, left_ = 0;
  std::size_t position_ = 0;
  std::uint8_t kind_ = 0;
  bool broken_ = false;
};

}  // namespace hocket::internal
