// The transports of an engine. They are told of every collective that begins on this rank, so that
// they find messages of a collective that this rank did not call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collectives/execute/executor.h"
#include "engine/operation.h"
#include "transport/transport.h"

namespace hocket::internal {

class TransportSet {
 public:
  /// The transports and the links outlive it.
  TransportSet(std::vector<Transport*> transports, const Links& links)
      : transports_(std::move(transports)), links_(links) {}

  const std::vector<Transport*>& all() const { return transports_; }
  /// The transports of a program's messages. Any thread.
  std::vector<const Transport*> used_by(const Program& program) const;

  /// Polls the active transports. Returns true if bytes moved.
  bool poll() {
    bool moved = false;
    for (Transport* transport : transports_) {
      if (!transport->active()) continue;
      moved |= transport->poll();
      take_failure(*transport);
    }
    return moved;
  }
  /// True if poll() would poll a transport.
  bool active() const {
    // Not any_of: that calls Transport::active() as a function, which small calls notice.
    for (const Transport* transport : transports_) {
      if (transport->active()) return true;
    }
    return false;
  }
  /// Polls the others too, which may have messages although this rank has no transfers there.
  void poll_all();
  /// The error for a message of a collective that this rank did not call; null: there is none.
  const Status* failure() const { return failure_; }

  /// Tells the transports which collective this rank has begun, and which ones on the board before.
  /// If a message of another call has arrived already, failure() has its error. binding: of the
  /// latest collective.
  void announce(const Binding& binding);
  /// Tells each rank that the collective waits for in which call this rank waits.
  void tell_call(const Operation& collective);
  /// The ranks that the operation waits for. Those that have not begun it come first: the others
  /// wait themselves, most likely for one of these.
  std::vector<int> ranks_awaited_by(const Operation& operation) const;

  /// True if no active transport waits for a descriptor: only local peers, which ring the doorbell,
  /// can have work for this rank.
  bool use_board_only() const;
  /// Arms the wait descriptors for one sleep in poll.
  void prepare_to_sleep();
  /// Ends all transfers with an error.
  void cancel(const Status& why);

 private:
  void take_failure(const Transport& transport) {
    if (transport.failure() != nullptr) [[unlikely]]
      failure_ = transport.failure();
  }
  void announce(std::uint64_t sequence, const Signature& signature);
  Transport* to(int rank) const { return links_.transport_to[static_cast<std::size_t>(rank)]; }
  bool has_begun(int rank, const Operation& operation) const;

  const std::vector<Transport*> transports_;
  const Links& links_;
  const Status* failure_ = nullptr;  // Transport::failure(), of any of them
  std::uint64_t announced_ = 0;      // the last collective that they know
};

}  // namespace hocket::internal
