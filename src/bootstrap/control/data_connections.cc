#include "bootstrap/control/data_connections.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <vector>

namespace hocket::internal {

void DataConnections::set_listener(std::uint64_t comm_id, AdoptConnection adopt) {
  std::lock_guard lock(listeners_mutex_);
  listeners_[comm_id] = std::move(adopt);
}

void DataConnections::clear_listener(std::uint64_t comm_id) {
  std::lock_guard lock(listeners_mutex_);
  listeners_.erase(comm_id);
}

void DataConnections::opened(std::uint64_t comm_id) {
  retired_.erase(comm_id);
  std::vector<Name> parked;
  for (auto it = records_.lower_bound({comm_id, 0, 0});
       it != records_.end() && std::get<0>(it->first) == comm_id; ++it) {
    if (it->second.state == State::parked) parked.push_back(it->first);
  }
  for (const Name& name : parked) {
    const auto found = records_.find(name);
    if (found == records_.end()) continue;
    found->second.guard.reset();
    const Status status = found->second.status;
    deliver(name, std::move(found->second.parked), status);
  }
}

void DataConnections::closed(std::uint64_t comm_id) {
  {
    std::lock_guard lock(listeners_mutex_);
    if (listeners_.count(comm_id) != 0) return;  // a new listener has been set
  }
  if (retired_.insert(comm_id).second) retired_order_.push_back(comm_id);
  if (retired_order_.size() > most_retired) {
    retired_.erase(retired_order_.front());
    retired_order_.pop_front();
  }
  for (auto it = records_.lower_bound({comm_id, 0, 0});
       it != records_.end() && std::get<0>(it->first) == comm_id;) {
    it = records_.erase(it);
  }
}

void DataConnections::dial(int peer, const Address& address, std::uint64_t comm_id, int index) {
  const Name name{comm_id, peer, index};
  if (records_.count(name) != 0) return;
  Dialer::Options options;
  options.endpoint.tcp = address;
  options.credentials = credentials_;
  options.claim = {Purpose::data, rank_, peer, comm_id, static_cast<std::uint32_t>(index)};
  options.deadline = loop_.now() + patience_ms_ * nanos_per_ms;
  options.name = fmt::format("rank {} at {}", peer, address.text());
  Record& record = records_[name];
  record.state = State::dialling;
  record.dialer = Dialer::start(loop_, std::move(options), [this, name](Dialer::Result result) {
    dialled(name, std::move(result));
  });
}

void DataConnections::dialled(const Name& name, Dialer::Result result) {
  const auto found = records_.find(name);
  if (found == records_.end()) return;
  found->second.dialer.reset();
  if (result.duplicate) {
    found->second.state = State::awaited;
    return;
  }
  Status status;
  if (!result.stream) status = result.error(rank_, std::get<1>(name));
  deliver(name, std::move(result.stream), status);
}

Verdict DataConnections::judge(const Claim& claim) const {
  if (claim.target != rank_ || claim.rank == rank_ || claim.index > 0xffff) return Verdict::refused;
  if (retired_.count(claim.comm_id) != 0) return Verdict::refused;
  const auto found = records_.find({claim.comm_id, claim.rank, static_cast<int>(claim.index)});
  if (found == records_.end() || found->second.state == State::awaited) return Verdict::accepted;
  const bool lower_dials = claim.rank < rank_;
  return found->second.state == State::dialling && lower_dials ? Verdict::accepted
                                                               : Verdict::duplicate;
}

void DataConnections::accept(const Claim& claim, ByteStream stream) {
  const Name name{claim.comm_id, claim.rank, static_cast<int>(claim.index)};
  records_[name].dialer.reset();
  deliver(name, std::move(stream), {});
}

void DataConnections::deliver(const Name& name, ByteStream stream, const Status& status) {
  std::lock_guard lock(listeners_mutex_);
  const auto listener = listeners_.find(std::get<0>(name));
  Record& record = records_[name];
  record.dialer.reset();
  if (listener == listeners_.end()) {
    record.state = State::parked;
    record.status = status;
    record.parked = std::move(stream);
    if (record.parked) record.guard = loop_.watch(record.parked.fd(), EPOLLET, [](auto) {});
    return;
  }
  const AdoptConnection adopt = listener->second;  // it may replace itself
  if (stream) {
    record.state = State::adopted;
  } else {
    records_.erase(name);  // another dial() tries again
  }
  adopt(std::get<1>(name), std::get<2>(name), std::move(stream), status);
}

}  // namespace hocket::internal
