// A whole job in one thread, on a clock that only the test moves: the coordinator, and four ranks
// on three nodes. The state machines are those of the library; the event loops are simulated.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/job.h"
#include "bootstrap/join/coordinator.h"
#include "bootstrap/session_core.h"
#include "bootstrap/simulated_loop.h"

namespace hocket::internal::testing {

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
  /// text: a part of the fault's sentence.
  bool knows(Fault::Kind kind, int rank, const std::string& text = {}) const {
    const std::vector<Fault> faults = core_->faults().all();
    return std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
      return fault.kind == kind && fault.rank == rank && fault.text.find(text) != std::string::npos;
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
class SimulatedJob {
 protected:
  static constexpr int ranks = 4;
  static constexpr std::int64_t join_deadline_ms = 600'000;
  static constexpr std::int64_t silence_ms = 10'000;

  SimulatedJob() : job_(ranks), coordinator_loop_(simulation_.make_loop()) {
    job_.options.join_deadline_ms = join_deadline_ms;
    job_.options.silence_ms = silence_ms;
    simulation_.schedule(*coordinator_loop_);
    coordinator_ = Coordinator::start(*coordinator_loop_, Key{}, join_deadline_ms,
                                      [this] { coordinator_ended_ = true; });
    coordinator_->listen(std::move(job_.listener), {job_.options.key, job_.options.job_id, false});
  }

  JoinOptions with_another_key(int rank) const {
    JoinOptions options = job_.of(rank);
    options.share_memory = false;
    options.key[7] ^= 1;
    return options;
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

}  // namespace hocket::internal::testing
