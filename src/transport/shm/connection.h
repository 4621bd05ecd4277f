// A byte ring between two processes: one writes, the other reads. It lies in shared memory that
// both can write, so neither believes the other: positions are checked, headers are copied out
// before they are looked at.
//
//   0    written: bytes ever written (by the writer alone)
//   128  read:    bytes ever read (by the reader alone)
//   256  the ring: records, each starting at a multiple of 64
//
// Zero bytes are a valid, empty fifo.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hocket::internal {

class Fifo {
 public:
  static constexpr std::size_t line_bytes = 128;
  static constexpr std::size_t unit_bytes = 64;  // records start at multiples

  Fifo(std::byte* base, std::size_t bytes)
      : written_(reinterpret_cast<std::atomic<std::uint64_t>*>(base)),
        read_(reinterpret_cast<std::atomic<std::uint64_t>*>(base + line_bytes)),
        ring_(base + 2 * line_bytes),
        capacity_((bytes - 2 * line_bytes) / unit_bytes * unit_bytes) {}

 protected:
  /// Moves `position` (an offset in the ring) on.
  std::size_t after(std::size_t position, std::size_t bytes) const {
    position += bytes;
    return position >= capacity_ ? position - capacity_ : position;
  }

  std::atomic<std::uint64_t>* written_;
  std::atomic<std::uint64_t>* read_;
  std::byte* ring_;
  std::size_t capacity_;
};

class FifoWriter : public Fifo {
 public:
  using Fifo::Fifo;
  /// Bytes that can be written now. A reader that claims to have read what was never written leaves
  /// no room; broken() tells.
  std::size_t room(std::size_t wanted);
  bool broken() const { return broken_; }
  /// Copies bytes behind what was put before; the caller has asked for room.
  void put(const void* data, std::size_t bytes);
  /// Ends the record (pads it) and shows it to the reader.
  void publish();

 private:
  std::uint64_t mine_ = 0;  // bytes put, published or not
  std::uint64_t seen_ = 0;  // read_ when last looked at
  std::size_t position_ = 0;
  bool broken_ = false;
};

class FifoReader : public Fifo {
 public:
  using Fifo::Fifo;
  /// Bytes that can be read now.
  std::size_t ready();
  bool broken() const { return broken_; }
  /// Copies the next bytes out; the caller knows that they are ready.
  void get(void* data, std::size_t bytes);
  /// Ends the record (skips its padding) and gives its room back to the writer.
  void release();
  /// True where the writer may have been short of room before the last releases; asking resets it.
  bool writer_may_wait();

 private:
  std::uint64_t mine_ = 0;
  std::uint64_t seen_ = 0;  // written_ when last looked at
  std::uint64_t released_ = 0;
  std::size_t position_ = 0;
  bool was_full_ = false;
  bool broken_ = false;
};

}  // namespace hocket::internal
