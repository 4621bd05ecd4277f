// The coordinator of a join: receives the join requests of all ranks, checks that they fit
// together, gives every node leader its place in the tree of leaders, and tells them when all have
// the table of members. A state machine on the event loop; its connections are those of the
// leaders.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/auth/acceptor.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {

class Coordinator : private EventLoop::Client {
 public:
  /// session_key: in a job without a key, the key for all connections after the join; the table of
  /// members brings it to the ranks. In a job with a key, zeros: the ranks have the key, and the
  /// table crosses the network. ended: called once, when all ranks have joined and the listener is
  /// closed; or when the join has failed, and all ranks know why or a tenth of deadline_ms (at most
  /// a minute) has passed. Until then the exit of the process waits, at most 2 s. Must not destroy
  /// the Coordinator.
  static std::unique_ptr<Coordinator> start(EventLoop& loop, const Key& session_key,
                                            std::int64_t deadline_ms, std::function<void()> ended);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator() override;
  void listen(UniqueFd listener, const Credentials& credentials);
  /// Adds the connection of a leader that needs no handshake.
  void adopt(ByteStream stream);
  /// Ends the join with an error, which every rank that has come, or comes later, receives.
  void fail(Code code, int culprit, const std::string& text);
  /// To be called on the thread of the loop when the join of a rank of this process has failed: a
  /// coordinator of that job on the same loop does not wait for the rank. A rank that its node's
  /// leader has told need not come to the coordinator.
  static void join_has_failed(EventLoop& loop, const JobId& job_id, int rank);

 private:
  enum class State { gathering, confirming, done, failed };
  struct Node {
    std::unique_ptr<ControlConnection> conn;
    std::vector<int> ranks;  // in order of their join requests: the leader's is the first
    bool confirmed = false;
  };
  Coordinator(EventLoop& loop, const Key& session_key);
  void on_message(int node, Message& message);
  void on_closed(int node, int error);
  void other_key(const Claim& claim, const std::string& address);
  void take_request(int node, const JoinRequest& request);
  bool refuse_late(int node, const JoinRequest& request);
  void fail_by_other_key();
  void will_not_come(int rank);
  bool all_know() const;
  std::string violation(const JoinRequest& request) const;
  void place_all();
  void confirm(int node);
  bool fail(const Status& why) override;
  void process_exits() override;
  void set_deadline(Nanos deadline);
  void deadline_passed();
  void end();
  std::string who(const JoinRequest& request) const;

  EventLoop& loop_;
  Key session_key_;
  std::optional<JobId> job_id_;  // after listen()
  std::unique_ptr<Acceptor> acceptor_;
  // Is closed when this process has no descriptor left: then the acceptor takes the ranks'
  // connections one after another, and each rank is told.
  UniqueFd reserve_;
  std::function<void()> ended_;
  State state_ = State::gathering;
  Nanos deadline_ = 0;  // of the join; of a failed join: until then ranks may still come
  std::int64_t latecomers_ms_ = 0;  // how long a failed join waits for the ranks that have not come
  Timer timer_;
  int next_node_ = 0;
  std::map<int, Node> nodes_;            // by order of connection
  std::map<int, JoinRequest> requests_;  // by rank
  int came_ = 0;                         // join requests that have come, in time or not
  std::set<int> ranks_that_came_;        // the ranks of these requests
  std::set<int> absent_;                 // ranks that have not come and will not
  int ranks_ = 0;                        // as the first rank said; 0: no rank has come
  int first_rank_ = -1;
  Failure failure_;
  std::map<int, std::string> other_keys_;  // by the rank that it claims: a process with another key
  std::optional<ExitDelay> exit_delay_;
};

}  // namespace hocket::internal
