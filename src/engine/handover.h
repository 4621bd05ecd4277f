// How threads share the engine of a communicator. One thread at a time drives an engine. If another
// thread has calls for it meanwhile, such as the worker of another stream, it hands them over: the
// driving thread submits them. When the calls of the driving thread itself have ended, it stops
// driving, and a thread whose calls have not ended goes on. So no thread waits for the calls of
// another thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <span>

#include "base/status.h"
#include "engine/call_order.h"
#include "engine/wait.h"
#include "engine/work.h"

namespace hocket::internal {

class Communicator;
struct Handover;

/// A thread that waits for its handovers, and drives engines meanwhile.
struct HandoverThread {
  std::atomic<bool> look{false};   // tells it to stop driving and to look at its handovers
  Communicator* drives = nullptr;  // one of the communicators whose engines it drives; or null
};

/// What the threads of one process share.
struct Handovers {
  std::mutex mutex;
  std::condition_variable changed;
};

/// Of one communicator; guarded by Handovers::mutex.
struct HandoverQueue {
  HandoverThread* driver = nullptr;  // drives the engine; null: no thread does
  Handover* first = nullptr;         // all that have not ended, in no order
  Handover* first_new = nullptr;     // those that the driver will submit, in order
  Handover* last_new = nullptr;
};

/// Calls of one kind on one communicator that run together. The thread that hands them over keeps
/// them in place until they have ended.
struct Handover {
  Communicator* communicator = nullptr;
  CallOrder::Ticket ticket;
  std::span<const Call> calls;
  Status error;  // of this rank; instead of running the calls, it ends the communicator
  Work work;
  // The next are guarded by Handovers::mutex.
  bool handed_over = false, ended = false;
  HandoverThread* thread = nullptr;
  Handover *next = nullptr, *next_new = nullptr;
};

/// Hands over the calls of each handover when its ticket is next, and waits until all calls have
/// ended. sleepers has an element for each handover. Returns the first error. The caller must then
/// call finish() for each handover.
Status run_in_turn(Handovers& shared, std::span<Handover> handovers, std::span<Sleeper> sleepers);
/// Ends the ticket of a handover. From then on the communicator may be destroyed.
void finish(Handovers& shared, Communicator& communicator, CallOrder::Ticket ticket);
/// Replaces both functions for calls that do not run. Blocks until the ticket is next.
void skip(Handovers& shared, Communicator& communicator, CallOrder::Ticket ticket);

}  // namespace hocket::internal
