// How the leader of a node joins: it passes its followers' join requests to the coordinator, takes
// its place in the tree of leaders, and gives its followers the table of members, the heartbeat
// page and pidfds.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/auth/acceptor.h"
#include "bootstrap/auth/dialer.h"
#include "bootstrap/join/coordinator.h"
#include "bootstrap/join/join_role.h"

namespace hocket::internal {

class NodeLeader final : public JoinRole {
 public:
  NodeLeader(EventLoop& loop, const JoinSetup& setup, JoinHandlers handlers)
      : JoinRole(loop, setup, std::move(handlers)) {}
  /// listener: for followers; empty if this rank is a node of its own.
  void start(UniqueFd listener);
  /// The verdict on the connection of a child, which is another leader.
  Verdict judge_child(const Claim& claim) const;
  void accept_child(const Claim& claim, ByteStream stream);

 private:
  enum class State {
    connecting,  // to the coordinator
    gathering,   // passes on join requests; awaits its place in the tree of leaders
    placed,      // awaits the table of members
    linking,     // has the table; awaits its children in the tree
    confirmed,   // awaits done: all leaders have confirmed
    ended,
  };
  struct Follower {
    std::unique_ptr<ControlConnection> conn;
    JoinRequest request;
    bool has_come = false;  // the coordinator has been told, or will be, that the rank has come
    Nanos deadline = 0;
    SharedFd pidfd;
  };
  void adopt_follower(int rank, ByteStream stream);
  void tell_failure(Follower& follower);
  void on_follower_message(int id, Message& message);
  void on_follower_closed(int id);
  Status start_own_coordinator();
  void reach_coordinator();
  void reached(Dialer::Result result);
  void open_coordinator(ByteStream stream);
  void pass_on_request(const JoinRequest& request, Nanos deadline);
  void on_coordinator_message(Message& message);
  void take_place(const TreePosition& place);
  void open_parent(Dialer::Result result);
  void on_parent_message(Message& message);
  void on_child_message(Message& message);
  bool take_from_neighbour(const Message& message);
  void take_table(const Message& message);
  Status share_with_followers();
  void send_pidfds(const Follower& to);
  int expected_children() const;
  void confirm();
  void all_done();
  void keep_for_after_join(const Failure& failure);
  void tell_coordinator(const Failure& failure);
  void lost_neighbour(int culprit, const std::string& text);
  void lost_rank(int culprit, const std::string& text) {
    tell_coordinator({Code::remote_error, culprit, text});
  }
  bool ended() const override { return state_ == State::ended; }
  void set_ended() override { state_ = State::ended; }
  void report_failure(const Failure& failure) override;
  bool can_report() const override { return coordinator_ != nullptr; }
  void pass_on_failure(const Failure& failure) override;
  std::string awaited() const override;

  State state_ = State::connecting;
  // The first failure for the coordinator: it is sent as soon as this leader has reached the
  // coordinator, which then ends the join.
  std::optional<Failure> reported_;
  std::optional<Timer> lost_;          // until the loss of the first neighbour is reported
  Failure failure_{Code::ok, -1, {}};  // another code: how the join failed
  std::unique_ptr<Acceptor> acceptor_;
  std::map<int, Follower> followers_;  // by order of connection
  int next_follower_ = 0;
  std::unique_ptr<Coordinator> own_coordinator_;  // of a job without a key: it has one node
  std::unique_ptr<Dialer> coordinator_dialer_;
  std::unique_ptr<ControlConnection> coordinator_;
  std::unique_ptr<Dialer> parent_dialer_;
  TreePosition place_;
  std::vector<std::uint8_t> table_bytes_;
};

}  // namespace hocket::internal
