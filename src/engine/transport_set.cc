#include "engine/transport_set.h"

#include <algorithm>

namespace hocket::internal {

std::vector<const Transport*> TransportSet::used_by(const Program& program) const {
  const std::vector<std::uint32_t> peers = message_peers(program);
  std::vector<const Transport*> used;
  for (const Transport* transport : transports_) {
    const auto carries = [&](std::uint32_t peer) { return links_.transport_to[peer] == transport; };
    if (std::ranges::any_of(peers, carries)) used.push_back(transport);
  }
  return used;
}

void TransportSet::poll_all() {
  for (Transport* transport : transports_) {
    transport->poll();
    take_failure(*transport);
  }
}

void TransportSet::announce(const Binding& binding) {
  const int own = links_.board->local_rank();
  const std::uint64_t newest = binding.message_sequence;
  std::uint64_t at = std::max(announced_ + 1, RunAhead::required_by(newest));
  // Those on the board too: a peer may have sent a message of another call instead.
  for (; at < newest; ++at) announce(at, links_.board->call(own, at).signature);
  announce(newest, binding.signature);
}

void TransportSet::announce(std::uint64_t sequence, const Signature& signature) {
  if (sequence <= announced_) return;
  announced_ = sequence;
  for (Transport* transport : transports_) {
    transport->begin_collective(sequence, signature);
    take_failure(*transport);
  }
}

void TransportSet::tell_call(const Operation& collective) {
  const Binding& binding = collective.bound.binding;
  for (const int rank : ranks_awaited_by(collective)) {
    Transport* const transport = to(rank);
    if (transport == nullptr) continue;
    transport->tell_call(rank, binding.message_sequence, binding.signature);
  }
}

std::vector<int> TransportSet::ranks_awaited_by(const Operation& operation) const {
  std::vector<int> ranks = operation.execution.waits_for();
  std::stable_partition(ranks.begin(), ranks.end(),
                        [&](int rank) { return !has_begun(rank, operation); });
  return ranks;
}

bool TransportSet::has_begun(int rank, const Operation& operation) const {
  const BoundCall& bound = operation.bound;
  if (bound.binding.p2p || !bound.program->header().sends_messages) return false;
  const Transport* const transport = to(rank);
  return transport != nullptr &&
         transport->latest_sequence_from(rank) >= bound.binding.message_sequence;
}

bool TransportSet::use_board_only() const {
  return std::ranges::none_of(transports_, [](const Transport* transport) {
    return transport->active() && transport->wait_descriptor() >= 0;
  });
}

void TransportSet::prepare_to_sleep() {
  for (Transport* transport : transports_) transport->prepare_to_sleep();
}

void TransportSet::cancel(const Status& why) {
  // Each must end its transfers, even if there is no memory for one of them.
  for (Transport* transport : transports_) best_effort([&] { transport->cancel(why); });
}

}  // namespace hocket::internal
