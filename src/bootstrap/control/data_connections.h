// Opens the data connections of communicators. Both ends may dial; the lower rank decides which
// connection becomes number `index`, so that both ends get the same one:
//   - the lower rank refuses a connection that it has, or is dialling itself;
//   - the higher rank accepts what the lower rank dials, and drops its own attempt.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "bootstrap/auth/dialer.h"
#include "bootstrap/types.h"

namespace hocket::internal {

class DataConnections {
 public:
  DataConnections(EventLoop& loop, int rank, std::int64_t patience_ms)
      : loop_(loop), rank_(rank), patience_ms_(patience_ms) {}

  // From any thread:
  void set_listener(std::uint64_t comm_id, AdoptConnection adopt);
  void clear_listener(std::uint64_t comm_id);  // when it returns, the callback is not running

  // On the event loop's thread:
  void start(const Credentials& credentials) { credentials_ = credentials; }
  void opened(std::uint64_t comm_id);  // after set_listener
  void closed(std::uint64_t comm_id);  // after clear_listener
  void dial(int peer, const Address& address, std::uint64_t comm_id, int index);
  Verdict judge(const Claim& claim) const;
  void accept(const Claim& claim, ByteStream stream);
  void close() { records_.clear(); }
  std::size_t retired() const { return retired_.size() + retired_order_.size(); }
  std::size_t records() const { return records_.size(); }

 private:
  using Name = std::tuple<std::uint64_t, int, int>;  // comm_id, peer, index
  enum class State {
    dialling,
    awaited,  // the other end, which has the lower rank, is dialling
    parked,   // the connection was opened, or failed, before this rank called set_listener()
    adopted
  };
  struct Record {
    State state = State::dialling;
    std::unique_ptr<Dialer> dialer;
    ByteStream parked;
    Watch guard;  // without events: it makes a forked child close its copy of `parked`
    Status status;
  };
  void dialled(const Name& name, Dialer::Result result);
  void deliver(const Name& name, ByteStream stream, const Status& status);

  EventLoop& loop_;
  int rank_;
  std::int64_t patience_ms_;
  Credentials credentials_;
  std::map<Name, Record> records_;
  // The latest communicators that ended here: connections that arrive for them are refused. Every
  // handshake for a communicator ends long before most_retired further communicators have ended.
  static constexpr std::size_t most_retired = 4096;
  std::set<std::uint64_t> retired_;
  std::deque<std::uint64_t> retired_order_;
  std::recursive_mutex listeners_mutex_;  // held while a callback runs
  std::map<std::uint64_t, AdoptConnection> listeners_;
};

}  // namespace hocket::internal
