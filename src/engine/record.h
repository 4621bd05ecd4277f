// The record of the latest operations of a communicator: which call, by which program, when it
// began and ended, and which ranks it waits for. The thread that drives the engine writes it; any
// thread reads it at any time, also while that thread is inside an operation.
//
// A small operation does not read the clock, so most of its times are unknown. A time is known
// where the engine has read the clock anyway: after the first 1,000 polls of a wait. With a sink
// (tracing) the clock is read for every operation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "collectives/plan/program.h"

namespace hocket::internal {

struct RecordEntry {
  static constexpr std::size_t most_ranks = 8;

  std::uint64_t id = 0;  // from 1; counts every operation of this rank on the communicator
  /// Of a collective: its number among the collectives, the same on all ranks. Of a message: its
  /// number among those from this sender to this receiver.
  std::uint64_t sequence = 0;
  Signature signature;  // a message: without root
  int peer = -1;        // of a message
  const Program* program = nullptr;
  // On the monotonic clock; 0: unknown.
  Nanos begin = 0;     // without a sink: when the clock was first read, after 1,000 idle polls
  Nanos admitted = 0;  // when all ranks that are needed were seen to have arrived, or the peer
                       // answered
  Nanos end = 0;
  bool ended = false;
  Code code = Code::ok;
  /// For an operation that takes long: when the engine last looked at the ranks that it waits for;
  /// 0: never. `waiting` is their number, waits_for has the first of them.
  Nanos looked = 0;
  std::size_t waiting = 0;
  std::array<std::uint16_t, most_ranks> waits_for{};
};

/// Receives every operation that has ended.
class RecordSink {
 public:
  virtual void ended(const RecordEntry& entry) = 0;

 protected:
  ~RecordSink() = default;
};

class OperationRecord {
 public:
  using Id = std::uint64_t;  // 0: not recorded

  /// Keeps at least `operations` operations; 0: none. The sink may be null; it outlives the record.
  OperationRecord(std::size_t operations, RecordSink* sink);

  // ---- By the thread that drives the engine. A time of 0 is unknown.
  bool times_all() const { return sink_ != nullptr; }
  /// peer: of a message, else -1. sequence: as in RecordEntry.
  Id begin(const Signature& signature, int peer, std::uint64_t sequence, const Program* program,
           Nanos when) {
    return add(signature, peer, sequence, program, when != 0 ? has_begin : 0, when);
  }
  /// An operation that has ended without error, before its beginning was recorded. Its times are
  /// unknown.
  void add_ended(const Signature& signature, int peer, std::uint64_t sequence,
                 const Program* program) {
    add(signature, peer, sequence, program, has_ended, 0);
  }
  void began(Id id, Nanos when);
  void admitted(Id id, Nanos when);
  void waits(Id id, std::span<const int> ranks, Nanos when);
  /// program: the one that ran in the end.
  void end(Id id, Code code, const Program* program, Nanos when) {
    Slot* const slot = find(id);
    if (slot == nullptr) return;
    if (slot->program.load(std::memory_order_relaxed) != program) [[unlikely]]
      slot->program.store(program, std::memory_order_release);
    if (when != 0) [[unlikely]]
      times_[id & mask_].end.store(when, std::memory_order_release);
    add_state(*slot, has_ended | (when != 0 ? has_end : 0) |
                         static_cast<std::uint64_t>(code) << code_shift);
    if (sink_ != nullptr) [[unlikely]]
      sink_->ended(copy(id & mask_));
  }

  // ---- By any thread
  /// The operations that are kept, the oldest first. An entry that is being overwritten is left
  /// out.
  std::vector<RecordEntry> entries() const;

 private:
  // The writer of a slot makes `id` 0 first and sets it last; a reader that saw two different ids,
  // or 0, reads again. The stores in between are releases and the loads acquires, so that a reader
  // that sees a new word sees the 0 or the new id too. The ranks that an operation waits for are
  // written several times under one id: `version` is odd meanwhile. What is written for every
  // operation lies in one cache line.
  struct alignas(64) Slot {
    std::atomic<Id> id{0};
    std::atomic<std::uint64_t> sequence{0}, number{0}, count{0};
    std::atomic<std::uint64_t> call{0};  // collective, dtype, op, flags; root or peer
    std::atomic<const Program*> program{nullptr};
    std::atomic<std::uint64_t> state{0};  // what is known, ended, code
  };
  struct alignas(64) Times {
    std::atomic<Nanos> begin{0}, admitted{0}, end{0};
    std::atomic<std::uint64_t> version{0};  // of the rest
    std::atomic<Nanos> looked{0};
    std::atomic<std::uint64_t> waiting{0};
    std::array<std::atomic<std::uint64_t>, RecordEntry::most_ranks / 4> waits_for{};
  };
  // Bits of a slot's state; the code lies above them.
  static constexpr std::uint64_t has_begin = 1, has_admitted = 2, has_end = 4, has_look = 8,
                                 has_ended = 16;
  static constexpr int code_shift = 8;

  Id add(const Signature& signature, int peer, std::uint64_t sequence, const Program* program,
         std::uint64_t state, Nanos begin) {
    if (slots_ == nullptr) return 0;
    const Id id = ++last_;
    Slot& slot = slots_[id & mask_];
    constexpr auto release = std::memory_order_release;
    slot.id.store(0, std::memory_order_relaxed);
    slot.sequence.store(sequence, release);
    slot.number.store(signature.sequence, release);
    slot.count.store(signature.count, release);
    slot.call.store(pack(signature, peer), release);
    slot.program.store(program, release);
    if (begin != 0) [[unlikely]]
      times_[id & mask_].begin.store(begin, release);
    slot.state.store(state, release);
    slot.id.store(id, release);
    return id;
  }
  /// Returns null if a later operation has taken the slot.
  Slot* find(Id id) {
    if (id == 0) return nullptr;
    Slot& slot = slots_[id & mask_];
    return slot.id.load(std::memory_order_relaxed) == id ? &slot : nullptr;
  }
  static void add_state(Slot& slot, std::uint64_t bits) {
    const std::uint64_t before = slot.state.load(std::memory_order_relaxed);
    slot.state.store(before | bits, std::memory_order_release);
  }
  /// Reads the signature byte by byte: a load of 8 bytes would wait for the single stores to them.
  static std::uint64_t pack(const Signature& signature, int peer) {
    const auto rank = static_cast<std::uint32_t>(peer >= 0 ? peer : signature.root);
    return static_cast<std::uint64_t>(signature.collective) |
           static_cast<std::uint64_t>(signature.dtype) << 8 |
           static_cast<std::uint64_t>(signature.op) << 16 |
           static_cast<std::uint64_t>(signature.flags) << 24 | std::uint64_t{rank} << 32;
  }
  bool read(std::size_t place, RecordEntry* entry) const;
  RecordEntry copy(std::size_t place) const;

  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Times[]> times_;  // of the slots
  std::size_t mask_ = 0;
  Id last_ = 0;
  RecordSink* const sink_;
};

}  // namespace hocket::internal
