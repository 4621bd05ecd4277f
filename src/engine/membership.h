// The members of a communicator: its ranks, their nodes, their names in errors, and what a fault of
// the session means to the communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "bootstrap/session.h"
#include "collectives/plan/plan.h"
#include "engine/engine_host.h"

namespace hocket::internal {

/// The number of ranks of the job on this machine, per core on which they may run. Ranks of all
/// communicators and transports count, because all of them may run at once.
double ranks_per_core(const Session& session);
/// The same for the machine of that member.
double ranks_per_core(const Session& session, const Member& there);

class Membership {
 public:
  /// members: session ranks, in communicator order. name: of the communicator. The session outlives
  /// the membership, and keeps the faults of the communicator until its end.
  Membership(Session& session, std::vector<int> members, std::uint64_t comm_id, std::string name);

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(members_.size()); }
  int nodes() const { return static_cast<int>(layout_->nodes()); }
  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  int local_rank() const { return local_rank_; }
  int local_ranks() const { return static_cast<int>(local_members_.size()); }
  const std::vector<int>& members() const { return members_; }
  const std::vector<int>& local_members() const { return local_members_; }
  int session_rank(int rank) const {
    HOCKET_ASSERT(rank >= 0 && rank < ranks(), "a rank of the communicator");
    return members_[static_cast<std::size_t>(rank)];
  }
  const Member& member(int rank) const {
    return session_.members()[static_cast<std::size_t>(session_rank(rank))];
  }
  std::uint64_t comm_id() const { return scope_.comm_id; }
  /// Returns the comm id of the ranks that give `color` in the next split. Counts splits, so all
  /// ranks call it once for each split.
  std::uint64_t comm_id_of_next_split(int color);
  /// Returns the comm id of the communicator that these members (session ranks) make next with this
  /// tag. Counts such communicators, so all members call it once for each.
  std::uint64_t comm_id_of_next_group(std::span<const int> members, int tag);
  /// -1: not a member.
  int rank_of_session(int session_rank) const;
  std::string name_of_rank(int rank) const;

  /// The node of a rank, and its number there. Nodes are numbered in the order of their lowest
  /// ranks.
  struct RankOnNode {
    int node = 0, local_rank = 0;
  };
  std::vector<RankOnNode> ranks_on_nodes() const;  // by rank

  // ---- Faults
  /// The scope of the faults that concern the communicator in that collective; 0: in all.
  FaultScope scope(std::uint64_t operation) const;
  /// While the communicator is being made: the comm_id of the communicator that it is split from,
  /// whose abort ends the making too. 0: none.
  void set_parent(std::uint64_t comm_id) { scope_.parent = comm_id; }
  /// The first fault that ends operations, as an error; OK: there is none. Any thread.
  Status first_fault() const;
  /// The monitor thread calls wake after each new fault, until unwatch_faults().
  void watch_faults(std::function<void()> wake) { watch_ = session_.watch(std::move(wake)); }
  /// wake is not running when it returns, and does not run again.
  void unwatch_faults() noexcept {
    if (watch_ >= 0) session_.unwatch(watch_);
    watch_ = -1;
  }
  /// Adds the faults that are new since the last call.
  void poll_faults(FaultNews* news);
  /// The same error with ranks and names of this communicator. status: of a call of the session to
  /// `peer`.
  Status error_of_peer(int peer, const Status& status) const;

  /// The error of the communicator after an abort by this rank.
  Status own_abort() const;

  // ---- What the other ranks are told
  void report_failure(const Status& status, std::uint64_t operation);
  /// The other ranks are asked which of them has not begun that collective.
  void report_overdue(std::uint64_t collective, const std::string& what_waits);
  /// Reports this rank as the culprit if another rank waits for a collective after `begun`, the
  /// last collective that has begun here. Called on the monitor thread only, after each new fault.
  void answer_overdue(std::uint64_t begun);
  void report_left();
  /// status: own_abort().
  void report_abort(const Status& status);
  /// Reports that this rank cannot take part in the making of the communicator `part`, for which
  /// other ranks may already wait.
  void report_failed_split(std::uint64_t part, const Status& status);

 private:
  Status status_of(const Fault& fault) const;
  std::string with_both_numbers(int rank, const std::string& text) const;
  void add_gone(const Fault& fault, FaultNews* news) const;

  Session& session_;
  std::vector<int> members_;         // session rank by rank
  std::vector<int> local_members_;   // rank by local rank
  std::vector<int> rank_of_member_;  // rank by session rank; -1: not a member
  OpenCommId open_comm_id_;
  FaultScope scope_;
  const std::string name_;
  int rank_ = 0, local_rank_ = 0;
  std::shared_ptr<const Layout> layout_;
  std::uint64_t faults_seen_ = 0;
  std::uint64_t overdue_seen_ = 0;  // on the monitor thread
  std::uint64_t splits_ = 0;
  std::map<std::uint64_t, std::uint64_t> groups_;  // how many, by the comm id of number 0
  int watch_ = -1;                                 // of the session; -1: none
};

}  // namespace hocket::internal
