// Whole jobs in one thread, on a clock that only the test moves: the coordinator, node leaders,
// their followers, the handshakes, the failure detectors. All that they need from outside comes
// through one seam, EventLoop.
//
// So the test also shows what no interface can show. If a state machine waited for another one
// inside a call, the test would hang until the limit of the test run. If it read the clock of the
// machine, its timers would lie outside of the time that the test allows, and run_until() would
// fail.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "bootstrap/job.h"
#include "bootstrap/join/coordinator.h"
#include "bootstrap/session_core.h"
#include "bootstrap/simulated_loop.h"
#include "memory/shared_memory.h"

namespace hocket::internal {
namespace {

using testing::SimulatedLoop;
using testing::Simulation;

constexpr int ranks = 4;
constexpr std::int64_t join_deadline_ms = 600'000;
constexpr std::int64_t silence_ms = 10'000;

/// A process with one rank.
class SimulatedRank {
 public:
  SimulatedRank(Simulation& simulation, const JoinOptions& options)
      : simulation_(simulation), loop_(simulation.make_loop()) {
    simulation_.schedule(*loop_);
    const Status made = SessionCore::make(options, *loop_, &core_);
    EXPECT_TRUE(made.ok()) << made.message();
    core_->start([this](const Status& status) { joined_ = status; });
  }
  ~SimulatedRank() { die(); }
  SimulatedRank(const SimulatedRank&) = delete;
  SimulatedRank& operator=(const SimulatedRank&) = delete;

  SessionCore& core() { return *core_; }
  SimulatedLoop& loop() { return *loop_; }
  const std::optional<Status>& joined() const { return joined_; }
  bool knows(Fault::Kind kind, int rank) const {
    const std::vector<Fault> faults = core_->faults().all();
    return std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
      return fault.kind == kind && fault.rank == rank;
    });
  }
  /// The process stands still: SIGSTOP.
  void stop() { simulation_.unschedule(*loop_); }
  /// The session is closed; the process goes on.
  void leave() { SessionCore::finish(std::move(core_)); }
  /// The process ends without a last message: SIGKILL.
  void die() {
    if (!loop_) return;
    simulation_.unschedule(*loop_);
    core_.reset();
    loop_.reset();
  }

 private:
  Simulation& simulation_;
  std::unique_ptr<SimulatedLoop> loop_;
  std::shared_ptr<SessionCore> core_;
  std::optional<Status> joined_;
};

/// Four ranks on three nodes: ranks 0 and 1 share memory, 2 and 3 are nodes of their own.
class JoinSeams : public ::testing::Test {
 protected:
  JoinSeams() : job_(ranks), coordinator_loop_(simulation_.make_loop()) {
    job_.options.join_deadline_ms = join_deadline_ms;
    job_.options.silence_ms = silence_ms;
    simulation_.schedule(*coordinator_loop_);
    coordinator_ = Coordinator::start(*coordinator_loop_, Key{}, join_deadline_ms,
                                      [this] { coordinator_ended_ = true; });
    coordinator_->listen(std::move(job_.listener), {job_.options.key, job_.options.job_id, false});
  }

  void come(int rank) {
    JoinOptions options = job_.of(rank);
    options.share_memory = rank < 2;
    ranks_[rank] = std::make_unique<SimulatedRank>(simulation_, options);
  }
  void join_all() {
    for (int rank = 0; rank < ranks; ++rank) come(rank);
    ASSERT_TRUE(run_until_all_joined());
    for (const auto& rank : ranks_) ASSERT_TRUE(rank->joined()->ok()) << rank->joined()->message();
  }
  /// Until the join of every rank that has come, and is alive, has ended.
  bool run_until_all_joined(Nanos limit = Simulation::start +
                                          (join_deadline_ms + 10'000) * nanos_per_ms) {
    return simulation_.run_until(
        [&] {
          return std::all_of(std::begin(ranks_), std::end(ranks_),
                             [](const auto& rank) { return !rank || rank->joined(); });
        },
        limit);
  }
  /// Until all ranks but `rank` know of its fault.
  bool run_until_known(Fault::Kind kind, int rank, std::int64_t limit_ms) {
    return simulation_.run_until(
        [&] {
          for (int other = 0; other < ranks; ++other) {
            if (other != rank && ranks_[other] && !ranks_[other]->knows(kind, rank)) return false;
          }
          return true;
        },
        simulation_.now() + limit_ms * nanos_per_ms);
  }

  Simulation simulation_;
  Job job_;
  std::unique_ptr<SimulatedLoop> coordinator_loop_;
  std::unique_ptr<Coordinator> coordinator_;
  bool coordinator_ended_ = false;
  std::unique_ptr<SimulatedRank> ranks_[ranks];
};

TEST_F(JoinSeams, ranks_join_in_one_thread_and_know_one_another) {
  join_all();
  EXPECT_TRUE(coordinator_ended_);
  const int nodes[ranks] = {0, 0, 1, 2};
  const int local_ranks[ranks] = {0, 1, 0, 0};
  for (const auto& rank : ranks_) {
    const std::vector<Member>& members = rank->core().members();
    ASSERT_EQ(members.size(), static_cast<std::size_t>(ranks));
    for (int other = 0; other < ranks; ++other) {
      EXPECT_EQ(members[other].node, nodes[other]);
      EXPECT_EQ(members[other].local_rank, local_ranks[other]);
    }
  }
  ranks_[3]->core().raise({Fault::Kind::aborted, 3, 0, 0, Code::remote_error, "it aborted"});
  EXPECT_TRUE(run_until_known(Fault::Kind::aborted, 3, 1000));
}

TEST_F(JoinSeams, data_connections_and_descriptors_need_no_other_thread) {
  join_all();
  constexpr std::uint64_t comm_id = 77;
  int adopted = 0;
  for (const int rank : {1, 2}) {
    ranks_[rank]->core().data().set_listener(
        comm_id, [&](int, int, const UniqueFd& fd, const Status& status) {
          EXPECT_TRUE(fd && status.ok()) << status.message();
          ++adopted;
        });
  }
  ranks_[2]->core().dial(1, comm_id, 0);

  UniqueFd memory;
  ASSERT_TRUE(make_memfd("join-seams", 4096, &memory).ok());
  const DescriptorName name{comm_id, 5};
  FaultScope scope;
  scope.comm_id = comm_id;
  scope.members = {0, 1};
  const auto fetch = std::make_shared<Fetch>(1, scope, name, nullptr);
  ranks_[0]->core().descriptors().fetch(fetch);
  simulation_.settle();
  EXPECT_FALSE(fetch->done()) << "rank 1 has not offered it";
  ranks_[1]->core().descriptors().offer(name, std::move(memory));
  EXPECT_TRUE(simulation_.run_until([&] { return fetch->done() && adopted == 2; },
                                    simulation_.now() + nanos_per_s));
  UniqueFd fetched;
  const Status taken = fetch->take(&fetched);
  EXPECT_TRUE(taken.ok() && fetched) << taken.message();
}

TEST_F(JoinSeams, a_rank_that_never_comes_is_named_after_ten_minutes_of_the_tests_clock) {
  for (const int rank : {0, 1, 3}) come(rank);
  ASSERT_TRUE(run_until_all_joined());
  for (const int rank : {0, 1, 3}) {
    const Status& status = *ranks_[rank]->joined();
    EXPECT_EQ(status.code(), Code::timeout) << status.message();
    EXPECT_EQ(status.culprit(), 2) << status.message();
    EXPECT_NE(status.message().find("rank 2 is missing"), std::string::npos) << status.message();
  }
  EXPECT_GE(simulation_.elapsed(), (join_deadline_ms - 1) * nanos_per_ms);
  EXPECT_LE(simulation_.elapsed(), join_deadline_ms * nanos_per_ms);

  come(2);  // too late
  ASSERT_TRUE(run_until_all_joined(simulation_.now() + nanos_per_s));
  EXPECT_EQ(ranks_[2]->joined()->culprit(), 2) << ranks_[2]->joined()->message();
  EXPECT_TRUE(coordinator_ended_) << "all ranks know why the join has failed";
}

TEST_F(JoinSeams, a_coordinator_that_stands_still_is_named_after_the_deadline) {
  come(0);
  come(2);
  simulation_.settle();
  simulation_.unschedule(*coordinator_loop_);
  come(3);  // its handshake gets no answer
  ASSERT_TRUE(run_until_all_joined());
  for (const int rank : {0, 2, 3}) {
    const Status& status = *ranks_[rank]->joined();
    EXPECT_EQ(status.code(), Code::timeout) << status.message();
    EXPECT_NE(status.message().find("the coordinator at " + job_.options.coordinator.text()),
              std::string::npos)
        << status.message();
  }
  EXPECT_GE(simulation_.elapsed(), join_deadline_ms * nanos_per_ms);
}

TEST_F(JoinSeams, ranks_without_a_key_bring_their_own_coordinator) {
  for (int rank = 0; rank < ranks; ++rank) {
    JoinOptions options = job_.of(rank);
    options.has_key = false;
    options.coordinator = {};
    ranks_[rank] = std::make_unique<SimulatedRank>(simulation_, options);
  }
  ASSERT_TRUE(run_until_all_joined());
  for (const auto& rank : ranks_) {
    ASSERT_TRUE(rank->joined()->ok()) << rank->joined()->message();
    for (const Member& member : rank->core().members()) EXPECT_EQ(member.node, 0);
  }
}

TEST_F(JoinSeams, a_rank_that_aborts_its_join_is_named_by_the_others) {
  for (const int rank : {0, 1, 2}) come(rank);
  simulation_.settle();
  ranks_[1]->core().stop_join();
  ASSERT_TRUE(run_until_all_joined(simulation_.now() + nanos_per_s));
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ranks_[rank]->joined()->code(), Code::aborted) << ranks_[rank]->joined()->message();
    EXPECT_EQ(ranks_[rank]->joined()->culprit(), 1) << ranks_[rank]->joined()->message();
  }
}

/// By its number: 0 leads node 0, 1 follows there, 2 is the leader of a node in the tree.
class JoinSeamsVictim : public JoinSeams, public ::testing::WithParamInterface<int> {};

TEST_P(JoinSeamsVictim, that_aborts_before_it_has_reached_another_rank_is_named_by_the_others) {
  const int victim = GetParam();
  for (const int rank : {0, 1, 2}) {
    if (rank != victim) come(rank);
  }
  simulation_.settle();
  come(victim);
  ranks_[victim]->core().stop_join();
  ASSERT_TRUE(ranks_[victim]->joined()) << "the user's call returns at once";
  ranks_[victim]->leave();
  ASSERT_TRUE(run_until_all_joined(simulation_.now() + nanos_per_s));
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ranks_[rank]->joined()->code(), Code::aborted) << ranks_[rank]->joined()->message();
    EXPECT_EQ(ranks_[rank]->joined()->culprit(), victim) << ranks_[rank]->joined()->message();
  }
}

TEST_P(JoinSeamsVictim, that_dies_during_the_join_is_named_at_once) {
  for (int rank = 0; rank < ranks - 1; ++rank) come(rank);
  simulation_.settle();
  for (int rank = 0; rank < ranks - 1; ++rank) ASSERT_FALSE(ranks_[rank]->joined());
  ranks_[GetParam()].reset();
  ASSERT_TRUE(run_until_all_joined(simulation_.now() + nanos_per_s));
  for (const auto& rank : ranks_) {
    if (!rank) continue;
    EXPECT_EQ(rank->joined()->code(), Code::remote_error) << rank->joined()->message();
    EXPECT_EQ(rank->joined()->culprit(), GetParam()) << rank->joined()->message();
    EXPECT_NE(rank->joined()->message().find("ended while the ranks were still joining"),
              std::string::npos)
        << rank->joined()->message();
  }
}

TEST_P(JoinSeamsVictim, that_dies_after_the_join_is_named_at_once) {
  join_all();
  ranks_[GetParam()].reset();
  EXPECT_TRUE(run_until_known(Fault::Kind::dead, GetParam(), silence_ms / 2));
}

TEST_P(JoinSeamsVictim, that_stands_still_is_silent_after_the_silence_limit) {
  join_all();
  // Every rank has sent heartbeats before the victim stops.
  const Nanos stopped = simulation_.now() + nanos_per_s;
  ASSERT_FALSE(simulation_.run_until([] { return false; }, stopped));
  for (const auto& rank : ranks_) ASSERT_EQ(rank->core().faults().count(), 0U);
  ranks_[GetParam()]->stop();
  const Nanos before = simulation_.now();
  ASSERT_TRUE(run_until_known(Fault::Kind::silent, GetParam(), 2 * silence_ms));
  EXPECT_GE(simulation_.now() - before, (silence_ms - silence_ms / 20) * nanos_per_ms);
  EXPECT_LE(simulation_.now() - before, (silence_ms + silence_ms / 10) * nanos_per_ms);
}

INSTANTIATE_TEST_SUITE_P(Ranks, JoinSeamsVictim, ::testing::Values(0, 1, 2));

TEST_F(JoinSeams, a_leader_that_has_left_forwards_faults_until_no_rank_needs_it) {
  join_all();
  SimulatedLoop& loop = ranks_[0]->loop();
  ranks_[0]->leave();
  simulation_.settle();
  EXPECT_EQ(loop.kept(), 1U) << "rank 1 reaches the other nodes through rank 0";
  ranks_[1]->core().raise({Fault::Kind::aborted, 1, 0, 0, Code::remote_error, "it aborted"});
  const auto all_know = [&] {
    return ranks_[2]->knows(Fault::Kind::aborted, 1) && ranks_[3]->knows(Fault::Kind::aborted, 1);
  };
  EXPECT_TRUE(simulation_.run_until(all_know, simulation_.now() + nanos_per_s));
  for (const int rank : {1, 2, 3}) ranks_[rank]->leave();
  EXPECT_TRUE(
      simulation_.run_until([&] { return loop.kept() == 0; }, simulation_.now() + nanos_per_s));
}

}  // namespace
}  // namespace hocket::internal
