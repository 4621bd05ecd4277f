#include "engine/group.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <memory>
#include <mutex>

#include "base/assert.h"

namespace hocket::internal {
namespace {

/// Calls that run together: the calls of one stream, and of all streams that share a communicator
/// with it. So the calls of a communicator keep their order, and no stream waits for a message
/// whose other half is queued behind it.
struct Batch {
  struct Part {
    Communicator* communicator;
    CallOrder::Ticket ticket;
    std::vector<Call> calls;
  };
  std::vector<HostStream*> streams;
  std::vector<Part> parts;  // for each communicator up to two: its collectives, its messages

  bool uses(const HostStream* stream) const {
    return std::find(streams.begin(), streams.end(), stream) != streams.end();
  }
  bool has(const Communicator* communicator) const {
    return std::ranges::any_of(parts,
                               [&](const Part& part) { return part.communicator == communicator; });
  }
  void add(const GroupedCall& call) {
    if (!uses(call.stream)) streams.push_back(call.stream);
    const auto kind = is_p2p(call.call) ? CallOrder::Kind::messages : CallOrder::Kind::collectives;
    auto part = std::ranges::find_if(parts, [&](const Part& other) {
      return other.communicator == call.communicator && other.ticket.kind == kind;
    });
    if (part == parts.end()) part = parts.insert(part, {call.communicator, {kind, 0}, {}});
    part->calls.push_back(call.call);
  }
  void absorb(Batch&& other) {
    streams.insert(streams.end(), other.streams.begin(), other.streams.end());
    std::move(other.parts.begin(), other.parts.end(), std::back_inserter(parts));
  }
};

std::vector<Batch> batches_of(const std::vector<GroupedCall>& calls) {
  std::vector<Batch> batches;
  for (const GroupedCall& call : calls) {
    const auto concerns = [&](Batch& batch) {
      return batch.uses(call.stream) || batch.has(call.communicator);
    };
    auto first = std::find_if(batches.begin(), batches.end(), concerns);
    if (first == batches.end()) first = batches.insert(first, Batch());
    // The stream and the communicator may have been in different batches.
    const auto second = std::find_if(std::next(first), batches.end(), concerns);
    if (second != batches.end()) {
      first->absorb(std::move(*second));
      batches.erase(second);
    }
    first->add(call);
  }
  return batches;
}

/// If a batch has several streams, one of them runs it when all have reached it; the others wait.
class StreamRendezvous {
 public:
  explicit StreamRendezvous(std::size_t others) : missing_(others) {}
  void arrive() {
    std::lock_guard lock(mutex_);
    HOCKET_ASSERT(missing_ > 0, "each of the other streams arrives once");
    --missing_;
    changed_.notify_all();
  }
  void await_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return missing_ == 0; });
  }
  void end(const Status& status) {
    std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = status;
    changed_.notify_all();
  }
  Status await_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t missing_;
  bool ended_ = false;
  Status status_;  // how the batch ended
};

Handover handover_of(const Batch::Part& part) {
  Handover handover;
  handover.communicator = part.communicator;
  handover.ticket = part.ticket;
  handover.calls = part.calls;
  return handover;
}

Status run_together(Handovers& shared, const std::vector<Batch::Part>& parts) {
  std::vector<Handover> handovers;
  handovers.reserve(parts.size());
  for (const Batch::Part& part : parts) handovers.push_back(handover_of(part));
  std::vector<Sleeper> sleepers(parts.size());
  return run_in_turn(shared, handovers, sleepers);
}

Status run(const Batch& batch) {
  HOCKET_ASSERT(!batch.parts.empty(), "a batch has calls");
  Handovers& shared = batch.parts.front().communicator->shared().handovers;
  bool ran = false;
  const Status status = status_of_call([&] {
    const Status result = run_together(shared, batch.parts);
    ran = true;
    return result;
  });
  for (const Batch::Part& part : batch.parts) {
    if (!ran) {  // without memory for it, nothing was handed over
      Handover handover = handover_of(part);
      handover.error = status;
      Sleeper sleeper;
      [[maybe_unused]] const Status failed = run_in_turn(shared, {&handover, 1}, {&sleeper, 1});
    }
    finish(shared, *part.communicator, part.ticket);
  }
  return status;
}

Status run_with(const Batch& batch, StreamRendezvous* rendezvous) {
  if (rendezvous != nullptr) rendezvous->await_all();
  const Status status = run(batch);
  if (rendezvous != nullptr) rendezvous->end(status);
  return status;
}

/// Pushes the batch to its streams. If one of them is the caller's thread, the caller runs the
/// batch afterwards.
Status push(const Batch& batch, const std::shared_ptr<StreamRendezvous>& rendezvous,
            bool in_this_thread) {
  const std::lock_guard lock(batch.parts.front().communicator->shared().group_order);
  Status first;
  bool has_runner = in_this_thread;
  for (HostStream* stream : batch.streams) {
    if (stream == nullptr) continue;
    const Status status = status_of_call([&]() -> Status {
      if (!has_runner) {
        return stream->push([batch, rendezvous] { return run_with(batch, rendezvous.get()); });
      }
      return stream->push([rendezvous] {
        rendezvous->arrive();
        return rendezvous->await_end();
      });
    });
    has_runner |= status.ok();
    if (status.ok()) continue;
    if (first.ok()) first = status;
    if (rendezvous != nullptr) rendezvous->arrive();
  }
  if (!has_runner) {
    for (const Batch::Part& part : batch.parts) {
      skip(part.communicator->shared().handovers, *part.communicator, part.ticket);
    }
  }
  return first;
}

}  // namespace

Status launch(const std::vector<GroupedCall>& calls) {
  Status first;
  const auto keep = [&first](const Status& status) {
    if (first.ok()) first = status;
  };
  std::vector<Batch> batches = batches_of(calls);
  std::vector<std::shared_ptr<StreamRendezvous>> rendezvous_of(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::size_t streams = batches[i].streams.size();
    if (streams > 1) rendezvous_of[i] = std::make_shared<StreamRendezvous>(streams - 1);
  }
  // Nothing throws from here on, because each ticket that is taken must be served.
  for (Batch& batch : batches) {
    for (Batch::Part& part : batch.parts) {
      part.ticket = part.communicator->order().take_ticket(part.ticket.kind);
    }
  }
  std::size_t mine = batches.size();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const bool in_this_thread = batches[i].uses(nullptr);
    if (in_this_thread) mine = i;
    keep(push(batches[i], rendezvous_of[i], in_this_thread));
  }
  if (mine < batches.size()) keep(run_with(batches[mine], rendezvous_of[mine].get()));
  return first;
}

Status launch_in_order(Communicator& communicator, const Call& call, HostStream* stream) {
  return launch({{&communicator, call, stream}});
}

}  // namespace hocket::internal
