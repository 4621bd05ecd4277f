// How this rank joins: it becomes its node's leader, or finds that one. A state machine on the
// monitor thread, which ends in joined() or failed().
//
//   rank                   leader                        root
//   arrive (pidfd)  --->   arrive (own, then others) --->
//                                               <---     place, and the table for the top leader
//                          table: down the tree
//   table, pulse,   <---   (to its node's ranks; its own arrive when they come)
//   pidfds                 confirm                   --->
//   done            <---                        <---     done: everybody has all of this
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "bootstrap/auth/acceptor.h"
#include "bootstrap/auth/dialer.h"
#include "bootstrap/control/join_result.h"
#include "bootstrap/join/coordinator.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {

class JoinProtocol : public std::enable_shared_from_this<JoinProtocol> {
 public:
  struct Handlers {
    std::function<Status(const Key& key)> table_known;  // an error ends the join
    std::function<void(JoinResult joined)> joined;
    std::function<void(const Status& status)> failed;
  };
  JoinProtocol(EventLoop& loop, const JoinOptions& options, const JoinRequest& self,
               Handlers handlers);
  ~JoinProtocol();
  void start();
  /// This rank gives up, and all ranks that have come learn why.
  void give_up(const Status& status);
  void stop();
  /// For a connection of another leader.
  Verdict judge_tree(const Claim& claim) const;
  void accept_tree(const Claim& claim, UniqueFd fd);

 private:
  struct Local {  // another rank of the node, by order of connection
    std::shared_ptr<ControlConnection> conn;
    JoinRequest arrival;
    bool arrived = false;
    Nanos deadline = 0;
    SharedFd pidfd;
  };
  void elect();
  void follow(Dialer::Result result);
  void on_leader_message(Message& message);
  bool take_leader_message(Message& message);
  void lead(UniqueFd node_listener);
  void adopt_local(UniqueFd fd);
  void on_local_message(int id, Message& message);
  void on_local_closed(int id);
  void reach_root();
  void open_root(UniqueFd fd);
  void announce(const JoinRequest& arrival, Nanos deadline);
  void on_root_message(Message& message);
  void take_place(const TreePosition& place);
  void open_parent(Dialer::Result result);
  void on_tree_message(Message& message);
  void take_table(const Message& message);
  Status share_node();
  void send_pidfds(const Local& to);
  int children() const;
  void confirm();
  void finish();
  void trouble(const Failure& failure);
  void trouble(int culprit, const std::string& text) {
    trouble(Failure{Code::remote_error, culprit, text});
  }
  void fail(const Status& status);
  static std::string who(const JoinRequest& arrival);

  EventLoop& loop_;
  JoinOptions options_;
  JoinRequest self_;
  Handlers handlers_;
  Credentials credentials_;
  Nanos deadline_ = 0;
  EventLoop::Token timer_ = 0;
  EventLoop::Token retry_ = 0;
  bool ended_ = false;
  Failure failure_{Code::ok, -1, {}};  // another code: how it ended

  int leader_rank_ = -1;
  std::string leader_name_ = "the leader of this node";
  std::shared_ptr<Dialer> dialer_;  // towards the leader or the root
  std::unique_ptr<Acceptor> node_acceptor_;
  std::map<int, Local> locals_;
  int next_local_ = 0;
  SharedFd own_pidfd_;
  std::shared_ptr<Coordinator> own_root_;  // without a key: the node is the whole job
  std::shared_ptr<ControlConnection> root_;
  std::shared_ptr<Dialer> parent_dialer_;
  bool placed_ = false;
  bool has_table_ = false;
  bool confirmed_ = false;
  TreePosition place_;
  std::vector<std::uint8_t> table_bytes_;
  JoinResult joined_;
};

/// A random number of this process, another one in a forked child.
std::uint64_t process_number();

}  // namespace hocket::internal
