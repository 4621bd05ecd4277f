// The calls of a half of a row: their buffers, their data, and the check of their results.
//
// Call number k reads input slot k % slots.in and writes output slot k % slots.out; in place both
// are slot k % slots.out of the receive buffers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "call.h"
#include "check.h"
#include "options.h"
#include "stats.h"

namespace hocket::perf {

/// What all rows share. The buffers are large enough for the largest row.
struct Ground {
  hocketComm_t comm = nullptr;
  hocketStream_t stream = nullptr;  // NULL: calls in the caller's thread
  char* send = nullptr;
  char* recv = nullptr;
  hocketRedOp_t redop = hocketSum;  // of the row: what the calls are given
};

/// Bytes from one slot to the next.
std::size_t stride_of(std::size_t bytes);

class Operation {
 public:
  Operation(const Ground& ground, const Expectation& expectation, bool in_place, Slots slots,
            std::size_t stride, int group);

  /// Writes new random data to all slots that are used.
  void fill();
  /// Makes calls first to first + group - 1, as a group if there are several. A window of messages
  /// also ends with an acknowledgement.
  bool iterate(std::size_t first, Failure* failure);
  /// Waits until all calls have ended.
  bool wait(Failure* failure);

  /// For the result of call k, which must be the last that used its output slot.
  std::uint64_t hash(std::size_t k) const;
  std::size_t wrong(std::size_t k) const;

  const Expectation& expectation() const { return expectation_; }
  const Slots& slots() const { return slots_; }
  std::size_t group() const { return group_; }
  bool in_place() const { return in_place_; }

 private:
  char* input(std::size_t k) const;
  char* output(std::size_t k) const;
  std::size_t input_slot(std::size_t k) const { return k % (in_place_ ? slots_.out : slots_.in); }
  bool call(std::size_t k, Failure* failure);
  bool send(std::size_t k, int to, Failure* failure);
  bool receive(std::size_t k, int from, Failure* failure);
  bool collective(std::size_t k, Failure* failure);
  bool collective_of_blocks(std::size_t k, Failure* failure);
  bool acknowledge(Failure* failure);

  Ground ground_;
  Expectation expectation_;
  bool in_place_;
  Slots slots_;
  std::size_t stride_;
  std::size_t group_;
  Blocks blocks_;
  std::size_t own_count_;   // elements of this rank's block
  std::size_t own_offset_;  // bytes before it in the buffer of all blocks
  std::uint64_t round_ = 0;
  char acknowledgement_[4] = {};
};

}  // namespace hocket::perf
