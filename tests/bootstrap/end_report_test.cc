// The report of the launcher that a rank has ended, in a job whose clock only the test moves.
#include "bootstrap/join/end_report.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "bootstrap/simulated_job.h"

namespace hocket::internal {
namespace {

constexpr const char* how = "rank 3 (process 77) exited with status 0";

class Reports : public ::testing::Test, protected testing::SimulatedJob {
 protected:
  Reports() : launcher_loop_(simulation_.make_loop()) { simulation_.schedule(*launcher_loop_); }

  void report_end_of_rank_3(const Address& coordinator) {
    report_ = std::make_unique<EndReport>(
        *launcher_loop_, Credentials{job_.options.key, job_.options.job_id, false, true},
        coordinator, Failure{Code::remote_error, 3, how});
    report_->start();
  }
  void expect_told(int rank) {
    ASSERT_TRUE(ranks_[rank]->joined());
    const Status& status = *ranks_[rank]->joined();
    EXPECT_EQ(status.code(), Code::remote_error) << status.message();
    EXPECT_EQ(status.culprit(), 3) << status.message();
    EXPECT_NE(status.message().find(how), std::string::npos) << status.message();
  }
  bool all_joined_soon() { return run_until_all_joined(simulation_.now() + nanos_per_s); }

  std::unique_ptr<testing::SimulatedLoop> launcher_loop_;
  std::unique_ptr<EndReport> report_;
};

TEST_F(Reports, of_an_end_are_told_at_once_to_the_ranks_that_wait) {
  for (const int rank : {0, 1, 2}) come(rank);
  simulation_.settle();
  report_end_of_rank_3(job_.options.coordinator);
  simulation_.settle();
  for (const int rank : {0, 1, 2}) expect_told(rank);
  EXPECT_TRUE(coordinator_ended_) << "rank 3 is awaited, although it has ended";
}

TEST_F(Reports, that_come_before_any_rank_are_told_to_all_ranks) {
  report_end_of_rank_3(job_.options.coordinator);
  simulation_.settle();
  for (const int rank : {2, 0, 1}) {
    EXPECT_FALSE(coordinator_ended_) << "rank " << rank << " does not know it yet";
    come(rank);
    ASSERT_TRUE(all_joined_soon());
    expect_told(rank);
  }
  EXPECT_TRUE(coordinator_ended_);
  come(3);  // another process of the rank that has ended
  ASSERT_TRUE(all_joined_soon());
  expect_told(3);
}

TEST_F(Reports, wait_for_a_coordinator_that_accepts_late) {
  simulation_.unschedule(*coordinator_loop_);
  report_end_of_rank_3(job_.options.coordinator);
  EXPECT_FALSE(simulation_.run_until([] { return false; },
                                     simulation_.now() + join_deadline_ms * nanos_per_ms / 2));
  simulation_.schedule(*coordinator_loop_);
  come(0);
  ASSERT_TRUE(all_joined_soon());
  expect_told(0);
}

TEST_F(Reports, are_told_to_the_next_coordinator_on_the_socket_too) {
  Address address = loopback(false);
  UniqueFd listener;
  ASSERT_TRUE(listen_tcp(&address, &listener).ok());
  report_end_of_rank_3(address);
  for (const int rank : {0, 2}) {
    UniqueFd own(::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0));
    coordinator_ = Coordinator::start(*coordinator_loop_, Key{}, join_deadline_ms, nullptr);
    coordinator_->listen(std::move(own), {job_.options.key, job_.options.job_id, false});
    JoinOptions options = job_.of(rank);
    options.coordinator = address;
    ranks_[rank] = std::make_unique<testing::SimulatedRank>(simulation_, options);
    ASSERT_TRUE(all_joined_soon());
    expect_told(rank);
    coordinator_.reset();
  }
}

TEST_F(Reports, after_the_join_change_nothing) {
  join_all();
  report_end_of_rank_3(job_.options.coordinator);
  simulation_.settle();
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->core().faults().all().empty());
}

}  // namespace
}  // namespace hocket::internal
