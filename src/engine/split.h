// A split, from the call that takes its ticket until it runs.
#pragma once

#include <memory>
#include <utility>

#include "engine/communicator.h"

namespace hocket::internal {

/// Holds the ticket of a split. If the split does not run, the destructor gives the ticket back.
class Split {
 public:
  Split(Communicator& parent, int color, int key, CommConfig config)
      : parent_(parent),
        ticket_(parent.order().take_ticket(CallOrder::Kind::collectives)),
        color_(color),
        key_(key),
        config_(std::move(config)) {}
  ~Split() {
    if (!done_) skip(parent_.shared().handovers, parent_, ticket_);
  }
  Split(const Split&) = delete;
  Split& operator=(const Split&) = delete;

  /// Runs Communicator::split().
  Status run(ErrorCell& errors, StopRequest* stop, std::unique_ptr<Communicator>* out) {
    done_ = true;
    return parent_.split(ticket_, color_, key_, config_, errors, stop, out);
  }

 private:
  Communicator& parent_;
  CallOrder::Ticket ticket_;
  int color_, key_;
  CommConfig config_;
  bool done_ = false;
};

}  // namespace hocket::internal
