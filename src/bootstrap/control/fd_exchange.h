// Sends descriptors to local peers, and fetches theirs. Each rank serves its own descriptors on an
// abstract Unix socket.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bootstrap/auth/acceptor.h"
#include "bootstrap/auth/dialer.h"
#include "bootstrap/control/fault_log.h"
#include "bootstrap/control/fetch.h"
#include "bootstrap/net/control_connection.h"

namespace hocket::internal {

class FdExchange {
 public:
  using Request = Fetch;

  FdExchange(EventLoop& loop, const FaultLog& faults, int rank)
      : loop_(loop), faults_(faults), rank_(rank) {}

  // On the event loop's thread:
  void serve(UniqueFd listener, const Credentials& credentials, std::int64_t patience_ms,
             Acceptor::OutOfDescriptors out_of_descriptors);
  void offer(DescriptorName name, UniqueFd fd);
  void withdraw(DescriptorName name);
  void fetch(const std::shared_ptr<Request>& request);
  void forget(const std::shared_ptr<Request>& request);  // its caller has given up
  void new_fault(const Fault& fault);
  void close_space(std::uint64_t space);      // withdraws all its descriptors
  void fail_all(const Status& why) noexcept;  // the requests of this rank
  void close(const Status& why);
  std::size_t offered() const { return offered_.size(); }
  std::size_t wanted() const { return wanted_.size(); }
  std::size_t requests() const { return requests_.size(); }

 private:
  struct NameLess {
    bool operator()(const DescriptorName& a, const DescriptorName& b) const {
      return a.space != b.space ? a.space < b.space : a.number < b.number;
    }
  };
  struct Wanted {  // a request of a local peer
    int client;
    std::uint64_t id;
  };
  struct Peer {  // a local peer that this rank asks
    std::unique_ptr<Dialer> dialer;
    std::unique_ptr<ControlConnection> conn;
    Timer lost;  // ends the requests to the peer after its connection has closed
  };
  void accept(ByteStream stream);
  void asked(int client, Message& message);
  void answer(const Wanted& wanted, const SharedFd& fd);
  bool ends(const Fault& fault, const Request& request) const;
  void dial(int peer);
  void dialled(int peer, Dialer::Result result);
  void lost(int peer);
  void ask(Peer& peer, std::uint64_t id, const DescriptorName& name);
  void answered(int peer, Message& message);
  void end(std::uint64_t id, const Status& status, UniqueFd fd);
  void end_all_of(int peer, const Status& status);

  EventLoop& loop_;
  const FaultLog& faults_;
  int rank_;
  Credentials credentials_;
  std::int64_t patience_ms_ = 0;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<DescriptorName, SharedFd, NameLess> offered_;
  std::map<DescriptorName, std::vector<Wanted>, NameLess> wanted_;
  std::map<int, std::unique_ptr<ControlConnection>> clients_;
  int next_client_ = 0;
  std::map<int, Peer> peers_;
  std::map<std::uint64_t, std::shared_ptr<Request>> requests_;
  std::uint64_t next_id_ = 1;
};

}  // namespace hocket::internal
