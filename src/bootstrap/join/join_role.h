// What both roles of a joining rank have in common. A rank either leads its node (node_leader.h) or
// follows the node's leader (rank_join.h). A role is a state machine on the event loop, which ends
// with one call of JoinHandlers::joined or JoinHandlers::failed.
//
//   follower                    leader                        coordinator
//   join_request (pidfd)  --->  join_request (its own, then its followers')  --->
//                                                  <---       place; the table to the top leader
//                               table: down the tree of leaders
//   table, heartbeat_page, <--- (the followers' join requests may come later)
//   pidfds                      confirm            --->
//   done                  <---                     <---       done: every rank has all of this
#pragma once

#include <functional>
#include <string>

#include "bootstrap/auth/auth.h"
#include "bootstrap/control/join_result.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/net/control_messages.h"
#include "bootstrap/net/event_loop.h"

namespace hocket::internal {

struct JoinHandlers {
  std::function<Status(const Key& key)> table_known;  // an error ends the join
  std::function<void(JoinResult joined)> joined;
  std::function<void(const Status& status)> failed;
};

/// The rank that joins.
struct JoinSetup {
  JoinSetup(const JoinOptions& options, const JoinRequest& self, Nanos now);
  JoinOptions options;
  JoinRequest self;
  Credentials credentials;
  Nanos deadline;
  SharedFd own_pidfd;  // null if the kernel has no pidfds or memory is not shared
};

class JoinRole {
 public:
  JoinRole(const JoinRole&) = delete;
  JoinRole& operator=(const JoinRole&) = delete;
  virtual ~JoinRole() = default;
  /// Ends the join with an error, which all ranks that have come receive.
  void give_up(const Status& why);
  /// To be called when the user aborts the join. If the other ranks cannot be told yet, the role
  /// goes on until it can tell them, and then calls handlers.failed.
  void stop();
  /// The error of the user's call.
  Status stopped() const;

 protected:
  JoinRole(EventLoop& loop, const JoinSetup& setup, JoinHandlers handlers)
      : loop_(loop), setup_(setup), handlers_(std::move(handlers)) {}
  void start_deadline();
  /// Decodes the table of members and passes it to the session. Returns false if the join has
  /// ended.
  bool take_table(const Message& message);
  void finish();
  void fail(const Status& status);
  /// To be called when can_report() becomes true: ends the join if the user has aborted it.
  void stop_if_asked();
  /// Ends this role without a call of the handlers.
  void end();
  int rank() const { return setup_.options.rank; }
  int ranks() const { return setup_.options.ranks; }
  static std::string who(const JoinRequest& request);

  EventLoop& loop_;
  const JoinSetup setup_;
  JoinHandlers handlers_;
  JoinResult joined_;

 private:
  virtual bool ended() const = 0;
  virtual void set_ended() = 0;
  /// Tells the leader or the coordinator that this rank gives up.
  virtual void report_failure(const Failure& failure) = 0;
  virtual bool can_report() const = 0;
  /// Tells the ranks that depend on this one.
  virtual void pass_on_failure(const Failure& failure) = 0;
  /// What this rank waits for: "the coordinator at 10.0.0.1:4000".
  virtual std::string awaited() const = 0;
  Status refusal(const Status& why) const;

  bool stop_asked_ = false;
  Timer deadline_timer_;
};

/// A random number of this process; a forked child has another one.
std::uint64_t process_number();

}  // namespace hocket::internal
