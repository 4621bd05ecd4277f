// Whole jobs in one thread, on a clock that only the test moves: the coordinator, node leaders,
// their followers, the handshakes, the failure detectors. All that they need from outside comes
// through one seam, EventLoop.
//
// So the test also shows what no interface can show. If a state machine waited for another one
// inside a call, the test would hang until the limit of the test run. If it read the clock of the
// machine, its timers would lie outside of the time that the test allows, and run_until() would
// fail.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "bootstrap/simulated_job.h"
#include "memory/shared_memory.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal {
namespace {

using testing::SimulatedLoop;
using testing::SimulatedRank;

class JoinSeams : public ::testing::Test, protected testing::SimulatedJob {};

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
        comm_id, [&](int, int, const ByteStream& stream, const Status& status) {
          EXPECT_TRUE(stream && status.ok()) << status.message();
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

TEST_F(JoinSeams, a_process_with_another_key_and_the_number_of_a_rank_that_has_come_is_ignored) {
  come(0);
  come(2);
  simulation_.settle();
  SimulatedRank stranger(simulation_, with_another_key(2));
  simulation_.settle();
  ASSERT_TRUE(stranger.joined());
  EXPECT_NE(stranger.joined()->message().find("refused this rank's job key"), std::string::npos);
  come(1);
  come(3);
  ASSERT_TRUE(run_until_all_joined());
  for (const auto& rank : ranks_) ASSERT_TRUE(rank->joined()->ok()) << rank->joined()->message();
}

/// The coordinator does not know yet how many ranks there are when the other process comes.
TEST_F(JoinSeams, another_key_is_forgotten_when_the_rank_of_its_number_comes) {
  SimulatedRank stranger(simulation_, with_another_key(0));
  simulation_.settle();
  ASSERT_TRUE(stranger.joined());
  for (int rank = 0; rank < ranks; ++rank) {
    come(rank);
    simulation_.settle();
  }
  ASSERT_TRUE(run_until_all_joined());
  for (const auto& rank : ranks_) ASSERT_TRUE(rank->joined()->ok()) << rank->joined()->message();
}

TEST_F(JoinSeams, a_rank_with_another_key_that_comes_last_ends_the_join_before_the_clock_moves) {
  for (const int rank : {0, 1, 2}) come(rank);
  simulation_.settle();
  SimulatedRank odd(simulation_, with_another_key(3));
  simulation_.settle();
  for (const int rank : {0, 1, 2}) {
    ASSERT_TRUE(ranks_[rank]->joined());
    EXPECT_EQ(ranks_[rank]->joined()->culprit(), 3);
    EXPECT_NE(ranks_[rank]->joined()->message().find("presented another job key"),
              std::string::npos);
  }
}

/// The process of rank 0 exits as soon as it has its error.
TEST_F(JoinSeams, the_exit_of_rank_0_waits_until_late_ranks_know_why_the_join_failed) {
  come(0);
  simulation_.settle();
  SimulatedRank odd(simulation_, with_another_key(3));
  simulation_.settle();
  coordinator_loop_->tell_of_exit();
  for (const int rank : {1, 2}) {
    EXPECT_EQ(coordinator_loop_->exit_delays(), 1) << "rank " << rank << " does not know it yet";
    come(rank);
    simulation_.settle();
    ASSERT_TRUE(ranks_[rank]->joined());
    EXPECT_EQ(ranks_[rank]->joined()->culprit(), 3) << ranks_[rank]->joined()->message();
  }
  EXPECT_EQ(coordinator_loop_->exit_delays(), 0);
  EXPECT_TRUE(coordinator_ended_);
}

TEST_F(JoinSeams, the_exit_of_rank_0_does_not_wait_for_ranks_with_another_key) {
  come(0);
  simulation_.settle();
  std::vector<std::unique_ptr<SimulatedRank>> odd;
  for (const int rank : {3, 1, 2}) {
    EXPECT_FALSE(coordinator_ended_);
    odd.push_back(std::make_unique<SimulatedRank>(simulation_, with_another_key(rank)));
    simulation_.settle();
  }
  EXPECT_TRUE(coordinator_ended_);
  coordinator_loop_->tell_of_exit();
  EXPECT_EQ(coordinator_loop_->exit_delays(), 0);
}

/// Rank 1 stands still after `steps` steps of its leader and of itself; then the join fails, and
/// the leader, which has told it, ends.
class StoppedFollower : protected testing::SimulatedJob {
 public:
  explicit StoppedFollower(int steps) {
    come(0);
    come(2);
    simulation_.settle();
    come(1);
    for (int i = 0; i < steps; ++i) ranks_[i % 2]->loop().step();
    ranks_[1]->stop();
    SimulatedRank odd(simulation_, with_another_key(3));
    simulation_.settle();
    ranks_[0]->die();
    simulation_.schedule(ranks_[1]->loop());
    EXPECT_TRUE(simulation_.run_until([this] { return ranks_[1]->joined().has_value(); },
                                      simulation_.now() + nanos_per_s));
  }
  std::optional<Status> joined() const { return ranks_[1]->joined(); }
  bool coordinator_ended() const { return coordinator_ended_; }
};

/// The follower's request may be on its way when it is told, or may never be sent.
TEST_F(JoinSeams, the_exit_of_rank_0_does_not_wait_for_a_follower_that_its_leader_has_told) {
  for (int steps = 0; steps < 24; ++steps) {
    const StoppedFollower job(steps);
    ASSERT_TRUE(job.joined()) << "after " << steps << " steps";
    EXPECT_EQ(job.joined()->culprit(), 3) << steps << " steps: " << job.joined()->message();
    EXPECT_TRUE(job.coordinator_ended()) << "after " << steps << " steps";
  }
}

TEST_F(JoinSeams, the_exit_of_rank_0_waits_two_seconds_at_most) {
  come(0);
  simulation_.settle();
  SimulatedRank odd(simulation_, with_another_key(3));
  simulation_.settle();
  const Nanos exit = simulation_.now();
  coordinator_loop_->tell_of_exit();
  EXPECT_TRUE(simulation_.run_until([&] { return coordinator_loop_->exit_delays() == 0; },
                                    exit + 2 * nanos_per_s));
  EXPECT_EQ(simulation_.now(), exit + 2 * nanos_per_s);
}

TEST_F(JoinSeams, the_exit_of_rank_0_waits_for_no_rank_that_missed_the_deadline) {
  come(0);
  ASSERT_TRUE(run_until_all_joined());
  EXPECT_EQ(ranks_[0]->joined()->code(), Code::timeout);
  coordinator_loop_->tell_of_exit();
  EXPECT_EQ(coordinator_loop_->exit_delays(), 0);
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

/// A job whose steps run in a random order. A rank, the victim, ends at a random moment.
class RandomJob : protected testing::SimulatedJob {
 public:
  RandomJob(unsigned long seed, int victim) : victim_(victim), random_(seed) {
    for (int rank = 0; rank < ranks; ++rank) come(rank);
    run(random_() % most_steps);
  }
  /// Returns false if its join has ended already.
  bool abort_join() {
    if (ranks_[victim_]->joined()) return false;
    ranks_[victim_]->core().stop_join();
    run(most_steps);
    return true;
  }
  void die() {
    ranks_[victim_].reset();
    run(most_steps);
  }
  /// reason: a part of the sentence that every rank has to get.
  bool run_until_all_know(const std::string& reason, Nanos limit) {
    return simulation_.run_until([&] { return others_know(reason); }, simulation_.now() + limit);
  }
  /// Of the other ranks, how many have joined.
  int joined() const {
    return static_cast<int>(std::ranges::count_if(
        ranks_, [](const auto& rank) { return rank && rank->joined() && rank->joined()->ok(); }));
  }
  /// How each rank ended its join, and its faults.
  std::string text() const {
    std::string out;
    for (const auto& rank : ranks_) {
      out += "\n";
      if (!rank) continue;
      out += rank->joined() ? rank->joined()->message() : "still joins";
      for (const Fault& fault : rank->core().faults().all()) out += "; " + fault.text;
    }
    return out;
  }

 private:
  static constexpr unsigned long most_steps = 400;  // some 300 are a whole join
  void run(unsigned long steps) {
    for (; steps > 0; --steps) simulation_.step(random_);
  }
  bool others_know(const std::string& reason) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == victim_) continue;
      const std::optional<Status>& joined = ranks_[rank]->joined();
      if (!joined) return false;
      if (joined->ok() && !ranks_[rank]->knows(Fault::Kind::dead, victim_, reason)) return false;
      if (joined->ok()) continue;
      EXPECT_EQ(joined->culprit(), victim_) << "rank " << rank << ": " << joined->message();
      EXPECT_NE(joined->message().find(reason), std::string::npos) << joined->message();
    }
    return true;
  }
  int victim_;
  std::mt19937_64 random_;
};

/// By its number: 0 leads node 0, 1 follows there, 2 is the leader of a node in the tree.
class RandomJobVictim : public ::testing::TestWithParam<int> {
 protected:
  static constexpr unsigned long jobs = tests::sanitized ? 60 : 1200;
};

/// A follower's failure may reach its leader before or after the leader has reached the
/// coordinator or has confirmed, and the coordinator before or after it has ended the join.
TEST_P(RandomJobVictim, that_aborts_its_join_at_any_moment_is_named_with_the_reason) {
  const unsigned long first = tests::seed();
  int failed = 0;
  for (unsigned long seed = first; seed < first + jobs; ++seed) {
    RandomJob job(seed, GetParam());
    if (!job.abort_join()) continue;
    ASSERT_TRUE(job.run_until_all_know("it aborted its join", nanos_per_s))
        << "seed " << seed << job.text();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << job.text();
    failed += job.joined() == 0;
  }
  EXPECT_LT(0, failed);
}

TEST_P(RandomJobVictim, that_dies_at_any_moment_is_named) {
  const unsigned long first = tests::seed();
  int failed = 0, joined = 0;
  for (unsigned long seed = first; seed < first + jobs; ++seed) {
    RandomJob job(seed, GetParam());
    job.die();
    // A rank that dies before its join request is missing at the deadline.
    ASSERT_TRUE(job.run_until_all_know("", 700 * nanos_per_s)) << "seed " << seed << job.text();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << job.text();
    (job.joined() > 0 ? joined : failed) += 1;
  }
  EXPECT_LT(0, failed);
  EXPECT_LT(0, joined);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RandomJobVictim, ::testing::Values(0, 1, 2));

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
