#include "engine/group.h"

#include <algorithm>

namespace hocket {
namespace {

/// The calls of one stream: which communicators, and what each runs, in order.
struct Batch {
  struct Part {
    Communicator* communicator;
    Communicator::Ticket ticket;
    std::vector<Call> calls;
  };
  HostStream* stream;
  std::vector<Part> parts;

  Part& part_of(Communicator* communicator) {
    for (Part& part : parts) {
      if (part.communicator == communicator) return part;
    }
    parts.push_back({communicator, communicator->take_ticket(), {}});
    return parts.back();
  }
};

Status run(const Batch& batch) {
  std::vector<Sleeper> sleepers;
  for (const Batch::Part& part : batch.parts) part.communicator->await_ticket(part.ticket);
  for (const Batch::Part& part : batch.parts) {
    for (const Call& call : part.calls) part.communicator->submit(call);
    sleepers.push_back(part.communicator->sleeper());
  }
  drive(sleepers, batch.parts.front().communicator->wait_policy());
  Status first;
  for (const Batch::Part& part : batch.parts) {
    if (first.ok()) first = part.communicator->error();
    part.communicator->serve_next();
  }
  return first;
}

}  // namespace

Status launch_one(Communicator& communicator, const Call& call, HostStream* stream) {
  if (stream == nullptr && !communicator.pending()) [[likely]] {
    return communicator.run({&call, 1});
  }
  return launch({{&communicator, call, stream}});
}

Status launch(const std::vector<GroupedCall>& calls) {
  std::vector<Batch> batches;
  for (const GroupedCall& grouped : calls) {
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& candidate) {
      return candidate.stream == grouped.stream;
    });
    if (batch == batches.end()) {
      batches.push_back({grouped.stream, {}});
      batch = std::prev(batches.end());
    }
    batch->part_of(grouped.communicator).calls.push_back(grouped.call);
  }
  const Batch* in_this_thread = nullptr;
  Status first;
  for (const Batch& batch : batches) {
    if (batch.stream == nullptr) {
      in_this_thread = &batch;
      continue;
    }
    const Status status = batch.stream->push([batch] { return run(batch); });
    if (!status.ok() && first.ok()) first = status;
  }
  if (in_this_thread != nullptr) {
    const Status status = run(*in_this_thread);
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace hocket
