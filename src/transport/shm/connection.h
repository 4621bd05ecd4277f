// A fifo: a ring of bytes between two processes, a writer and a reader. Both can write to its
// shared memory, so neither trusts the other: each checks positions, and the reader copies headers
// before it parses them. Offsets in bytes:
//
//   0    written: number of bytes ever written; only the writer changes it
//   8    closed:  not 0 if the writer's transfers have ended with an error; only the writer changes
//                 it
//   128  read:    number of bytes ever read; only the reader changes it
//   256  the ring: records, each of which starts at a multiple of 64
//
// A new fifo is all zero bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/assert.h"

namespace hocket::internal {

class Fifo {
 public:
  static constexpr std::size_t line_bytes = 128;
  static constexpr std::size_t unit_bytes = 64;  // records start at multiples

  Fifo(std::byte* base, std::size_t bytes)
      : written_(reinterpret_cast<std::atomic<std::uint64_t>*>(base)),
        closed_(written_ + 1),
        read_(reinterpret_cast<std::atomic<std::uint64_t>*>(base + line_bytes)),
        ring_(base + 2 * line_bytes),
        capacity_((bytes - 2 * line_bytes) / unit_bytes * unit_bytes) {}

 protected:
  /// Returns the offset in the ring that is `bytes` after `position`.
  std::size_t after(std::size_t position, std::size_t bytes) const {
    position += bytes;
    return position >= capacity_ ? position - capacity_ : position;
  }

  std::atomic<std::uint64_t>* written_;
  std::atomic<std::uint64_t>* closed_;
  std::atomic<std::uint64_t>* read_;
  std::byte* ring_;
  std::size_t capacity_;
};

class FifoWriter : public Fifo {
 public:
  using Fifo::Fifo;
  /// Bytes that can be written now. Returns 0 and sets broken() if the reader's position is
  /// impossible.
  std::size_t room(std::size_t wanted);
  bool broken() const { return broken_; }
  /// Appends bytes to the record; the caller has checked room(). non_temporal: 2 KiB and more are
  /// written with non-temporal stores.
  void put(const void* data, std::size_t bytes, bool non_temporal = false);
  /// The same for an object, whose size the compiler knows.
  template <typename Object>
  void put(const Object& object) {
    HOCKET_ASSERT(mine_ + sizeof object - seen_ <= capacity_, "the caller has checked room()");
    if (capacity_ - position_ < sizeof object) return put(&object, sizeof object);
    std::memcpy(ring_ + position_, &object, sizeof object);
    position_ = after(position_, sizeof object);
    mine_ += sizeof object;
  }
  /// Ends the record with padding and publishes it to the reader.
  void publish();
  /// Tells the reader that this process may now write to the memory whose locations it has sent.
  void close();

 private:
  std::uint64_t mine_ = 0;  // bytes put, published or not
  std::uint64_t seen_ = 0;  // last value read from read_
  std::size_t position_ = 0;
  bool broken_ = false;
};

class FifoReader : public Fifo {
 public:
  using Fifo::Fifo;
  /// Bytes that can be read now.
  std::size_t ready();
  bool broken() const { return broken_; }
  /// Copies the next bytes to data; the caller has checked ready().
  void get(void* data, std::size_t bytes);
  /// The same for an object, whose size the compiler knows.
  template <typename Object>
  void get(Object* object) {
    HOCKET_ASSERT(sizeof *object <= seen_ - mine_, "the caller has checked ready()");
    if (capacity_ - position_ < sizeof *object) return get(object, sizeof *object);
    std::memcpy(object, ring_ + position_, sizeof *object);
    position_ = after(position_, sizeof *object);
    mine_ += sizeof *object;
  }
  /// Skips the padding of the record and frees its room for the writer.
  void release();
  /// True if bytes that the caller has copied from a location may be other bytes than the writer's
  /// message, because the writer has closed the fifo.
  bool is_closed() const;
  /// True if the writer may have waited for room since the last call; the call resets it.
  bool writer_may_wait();

 private:
  std::uint64_t mine_ = 0;  // bytes taken, released or not
  std::uint64_t seen_ = 0;  // last value read from written_
  std::uint64_t released_ = 0;
  std::size_t position_ = 0;
  bool was_full_ = false;
  bool broken_ = false;
};

}  // namespace hocket::internal
