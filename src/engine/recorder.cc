#include "engine/recorder.h"

namespace hocket::internal {

void Recorder::note_start(Operation& operation, Nanos now) {
  operation.started = now;
  operation.next_look = now + Operation::between_looks;
  record_.began(operation.recorded, now);
}

void Recorder::look_at_waits(Operation& operation, const TransportSet& transports, Nanos now) {
  record_admission(operation, now);
  if (now < operation.next_look) return;
  operation.next_look = now + Operation::between_looks;
  // Without memory for the list, the record keeps the one before.
  best_effort(
      [&] { record_.waits(operation.recorded, transports.ranks_awaited_by(operation), now); });
}

}  // namespace hocket::internal
