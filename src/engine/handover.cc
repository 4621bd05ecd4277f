#include "engine/handover.h"

#include "base/assert.h"
#include "engine/communicator.h"

namespace hocket::internal {
namespace {

/// Tells the threads that have calls on the communicator that something has changed there.
void tell_others(Handovers& shared, const HandoverQueue& queue, const HandoverThread* self) {
  for (const Handover* other = queue.first; other != nullptr; other = other->next) {
    HandoverThread* const thread = other->thread;
    if (thread == self || thread->drives == nullptr) continue;
    if (!thread->look.exchange(true, std::memory_order_relaxed)) thread->drives->wake_driver();
  }
  shared.changed.notify_all();
}

/// The calls of one thread, until they have ended.
class Turn {
 public:
  Turn(Handovers& shared, std::span<Handover> handovers, std::span<Sleeper> sleepers)
      : shared_(shared), handovers_(handovers), sleepers_(sleepers) {}

  void run() {
    std::unique_lock lock(shared_.mutex);
    for (Handover& handover : handovers_) {
      HandoverQueue& queue = queue_of(handover);
      handover.thread = &self_;
      handover.next = queue.first;
      queue.first = &handover;
    }
    while (!all_ended()) {
      hand_over();
      const std::size_t engines = take_engines();
      if (engines == 0) {
        shared_.changed.wait(lock);
        continue;
      }
      lock.unlock();
      drive_engines(sleepers_.first(engines));
      lock.lock();
      leave_engines();
    }
  }

 private:
  static HandoverQueue& queue_of(Handover& handover) { return handover.communicator->handovers(); }

  bool all_ended() const {
    for (const Handover& handover : handovers_) {
      if (!handover.ended) return false;
    }
    return true;
  }

  void hand_over() {
    for (Handover& handover : handovers_) {
      CallOrder& order = handover.communicator->order();
      if (handover.handed_over || !order.is_next(handover.ticket)) continue;
      handover.handed_over = true;
      order.begin(handover.ticket);
      HandoverQueue& queue = queue_of(handover);
      (queue.last_new == nullptr ? queue.first_new : queue.last_new->next_new) = &handover;
      queue.last_new = &handover;
      tell_others(shared_, queue, &self_);
    }
  }

  /// Becomes the driver of the engines that have calls of this thread and no driver. Returns how
  /// many these are.
  std::size_t take_engines() {
    std::size_t taken = 0;
    Handover** last = &submits_;
    for (Handover& handover : handovers_) {
      HandoverQueue& queue = queue_of(handover);
      if (handover.ended || !handover.handed_over || queue.driver != nullptr) continue;
      queue.driver = &self_;
      self_.drives = handover.communicator;
      self_.look.store(false, std::memory_order_relaxed);
      sleepers_[taken++] = handover.communicator->sleeper();
      *last = queue.first_new;
      if (queue.last_new != nullptr) last = &queue.last_new->next_new;
      queue.first_new = queue.last_new = nullptr;
    }
    return taken;
  }

  void drive_engines(std::span<const Sleeper> engines) {
    while (submits_ != nullptr) {
      Handover& handover = *submits_;
      submits_ = handover.next_new;
      handover.communicator->submit(handover.calls, handover.error, &handover.work);
    }
    const Status driven = status_of_call([&]() -> Status {
      drive(engines, self_.drives->oversubscription(), &self_.look);
      return {};
    });
    for (const Sleeper& sleeper : engines) {
      if (!driven.ok()) sleeper.engine->fail_now(driven);
      sleeper.engine->report_failure();
      sleeper.engine->ring_pending();
    }
  }

  void leave_engines() {
    self_.drives = nullptr;
    for (Handover& own : handovers_) {
      HandoverQueue& queue = queue_of(own);
      if (queue.driver != &self_) continue;
      queue.driver = nullptr;
      for (Handover** link = &queue.first; *link != nullptr;) {
        Handover& handover = **link;
        if (handover.work.has_ended()) {
          *link = handover.next;
          handover.ended = true;
        } else {
          link = &handover.next;
        }
      }
      tell_others(shared_, queue, &self_);
    }
  }

  Handovers& shared_;
  std::span<Handover> handovers_;
  std::span<Sleeper> sleepers_;
  HandoverThread self_;
  Handover* submits_ = nullptr;  // those that this thread submits when it next drives
};

}  // namespace

Status run_in_turn(Handovers& shared, std::span<Handover> handovers, std::span<Sleeper> sleepers) {
  HOCKET_ASSERT(!handovers.empty() && sleepers.size() >= handovers.size(), "there is room");
  Turn(shared, handovers, sleepers).run();
  for (const Handover& handover : handovers) HOCKET_RETURN_IF_ERROR(handover.work.status());
  return {};
}

void finish(Handovers& shared, Communicator& communicator, CallOrder::Ticket ticket) {
  const std::lock_guard lock(shared.mutex);
  communicator.order().end(ticket);
  tell_others(shared, communicator.handovers(), nullptr);
  communicator.order().finish();
}

void skip(Handovers& shared, Communicator& communicator, CallOrder::Ticket ticket) {
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&] { return communicator.order().is_next(ticket); });
  communicator.order().begin(ticket);
  lock.unlock();
  finish(shared, communicator, ticket);
}

}  // namespace hocket::internal
