// Writes down what any thread may ask an engine about its operations: the record of the latest
// ones, and the program of the last collective.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "collectives/plan/program.h"
#include "engine/operation.h"
#include "engine/record.h"
#include "engine/transport_set.h"

namespace hocket::internal {

class Recorder {
 public:
  /// As OperationRecord.
  Recorder(std::size_t operations, RecordSink* sink) : record_(operations, sink) {}

  // ---- Any thread
  const OperationRecord& record() const { return record_; }
  /// Null before the first collective.
  const Program* last_program() const { return last_program_.load(std::memory_order_acquire); }

  // ---- By the thread that drives the engine
  /// now: empty if the caller has not read the clock.
  void begin_round(const std::optional<Nanos>& now) { now_ = now.value_or(0); }
  /// The time for the record; 0: unknown. Reads the clock only if operations are traced.
  Nanos time() const { return record_.times_all() ? monotonic_now() : now_; }

  /// peer: of a message, else -1. sequence: as in RecordEntry. when: of time().
  void begin(Operation& operation, int peer, std::uint64_t sequence, Nanos when) {
    const BoundCall& bound = operation.bound;
    operation.recorded =
        record_.begin(bound.binding.signature, peer, sequence, bound.program, when);
  }
  /// An operation that ended without error as soon as it had begun, at an unknown time.
  void add_ended(const Operation& operation, int peer, std::uint64_t sequence) {
    record_.add_ended(operation.bound.binding.signature, peer, sequence,
                      &operation.execution.program());
  }
  void end(const Operation& operation, Code code) {
    if (operation.recorded == 0) return;  // it did not begin
    record_.end(operation.recorded, code, &operation.execution.program(), time());
  }
  void set_last_program(const Program* program) {
    last_program_.store(program, std::memory_order_release);
  }
  /// To be called after each step of an operation.
  void look_at_admission(Operation& operation) {
    if (record_.times_all()) record_admission(operation, time());
  }
  /// To be called when the clock is first read while the operation runs.
  void note_start(Operation& operation, Nanos now);
  /// To be called then and whenever the clock is read later: records which ranks it waits for.
  void look_at_waits(Operation& operation, const TransportSet& transports, Nanos now);

 private:
  void record_admission(Operation& operation, Nanos now) {
    if (operation.admitted || !operation.execution.admitted()) return;
    operation.admitted = true;
    record_.admitted(operation.recorded, now);
  }

  OperationRecord record_;
  Nanos now_ = 0;  // of this round; 0: the clock was not read
  std::atomic<const Program*> last_program_ = nullptr;
};

}  // namespace hocket::internal
