// How a rank finds its node's leader and follows it. A rank that finds no leader becomes the leader
// itself: RankJoin ends then, and a NodeLeader goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "bootstrap/auth/dialer.h"
#include "bootstrap/join/join_role.h"

namespace hocket::internal {

class RankJoin final : public JoinRole {
 public:
  /// lead: called instead of the handlers if this rank becomes the leader, with the socket on which
  /// it has to listen for its followers.
  RankJoin(EventLoop& loop, const JoinSetup& setup, JoinHandlers handlers,
           std::function<void(UniqueFd listener)> lead)
      : JoinRole(loop, setup, std::move(handlers)), lead_(std::move(lead)) {}
  void start();

 private:
  enum class State {
    electing,        // binds the node's socket name, or connects to the leader that has bound it
    awaiting_table,  // has sent its join request
    awaiting_page,   // has the table of members
    awaiting_done,   // has the heartbeat page
    ended,
  };
  void elect();
  void reached(Dialer::Result result);
  void on_message(Message& message);
  bool take_message(Message& message);
  bool take_heartbeat_page(const Message& message);
  bool take_pidfds(Message& message);
  bool ended() const override { return state_ == State::ended; }
  void set_ended() override { state_ = State::ended; }
  void report_failure(const Failure& failure) override;
  bool can_report() const override { return joined_.leader != nullptr; }
  void pass_on_failure(const Failure&) override {}
  std::string awaited() const override { return leader_name_; }

  std::function<void(UniqueFd listener)> lead_;
  State state_ = State::electing;
  Timer retry_;
  std::unique_ptr<Dialer> dialer_;
  int leader_rank_ = -1;
  std::string leader_name_ = "the leader of this node";
};

}  // namespace hocket::internal
