// The root of a join: hears of all ranks, checks that they fit together, gives every node its place
// in the tree of leaders, and says when everybody has the table. A state machine on the monitor
// thread; its connections are the leaders'.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/auth/acceptor.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {

class Coordinator : public std::enable_shared_from_this<Coordinator>, private EventLoop::Client {
 public:
  /// key: goes into the table, for everything after the join.
  /// ended: all ranks have joined; or the join has failed, and all know, or latecomers have had a
  /// tenth of deadline_ms (at most a minute) to come and hear why. Nobody listens once all have
  /// joined.
  static std::shared_ptr<Coordinator> start(EventLoop& loop, const Key& key,
                                            std::int64_t deadline_ms, std::function<void()> ended);
  ~Coordinator() override { loop_.remove(this); }
  void listen(UniqueFd listener, const Credentials& credentials);
  /// A leader's connection that needs no handshake.
  void adopt(UniqueFd fd);
  /// Ends the join: every rank that has come, or comes later, learns why.
  void fail(Code code, int culprit, const std::string& text);

 private:
  enum class State { gathering, confirming, done, failed };
  struct Node {
    std::shared_ptr<ControlConnection> conn;
    std::vector<int> ranks;  // in order of arrival: the leader's is the first
    bool confirmed = false;
  };
  Coordinator(EventLoop& loop, const Key& key) : loop_(loop), key_(key) { loop_.add(this); }
  void on_message(int node, Message& message);
  void on_closed(int node);
  void arrive(int node, const JoinRequest& arrival);
  std::string violation(const JoinRequest& arrival) const;
  void place_all();
  void confirm(int node);
  bool fail(const Status& why) override;
  void set_deadline(Nanos deadline);
  void deadline_passed();
  void end();
  std::string who(const JoinRequest& arrival) const;

  EventLoop& loop_;
  Key key_;
  std::unique_ptr<Acceptor> acceptor_;
  std::function<void()> ended_;
  State state_ = State::gathering;
  Nanos deadline_ = 0;
  std::int64_t linger_ms_ = 0;
  EventLoop::Token timer_ = 0;
  int next_node_ = 0;
  std::map<int, Node> nodes_;  // by order of connection
  std::map<int, JoinRequest> arrivals_;
  int came_ = 0;         // ranks that have come, in time or not
  int ranks_ = 0;        // 0: nobody has come
  int first_rank_ = -1;  // who said so
  Failure failure_;
};

}  // namespace hocket::internal
