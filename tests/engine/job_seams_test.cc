// A whole job with its engines in one thread, on a clock that only the test moves. Four ranks join:
// the coordinator, the two roles of a joining rank and the failure detectors are those of the
// library, on simulated event loops. Then each rank makes an engine for the members that its join
// has found. Messages between the engines are in memory; their faults go through the sessions. The
// control connections are sockets of the kernel.
//
// As in seams_test.cc and join_seams_test.cc, a call that waited for another rank would hang the
// test, and a limit that was counted on the clock of the machine would not pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bootstrap/simulated_job.h"
#include "engine/simulated_engine.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal {
namespace {

using testing::call_of;
using testing::Values;
using testing::values_of;

constexpr std::uint64_t comm_id = 77;
constexpr Nanos deadline = 600 * nanos_per_s;

/// One rank of the communicator of all ranks. Its host tells failures to the session, and takes
/// the failures of other ranks from there.
class RankOfJob final : public testing::SimulatedEngine {
 public:
  /// Both outlive it.
  RankOfJob(testing::SimulatedNodes& nodes, SessionCore& core)
      : SimulatedEngine(nodes, core.rank(), deadline, {}), core_(core) {
    scope_.comm_id = comm_id;
    for (int r = 0; r < nodes.ranks(); ++r) scope_.members.push_back(r);
    core_.faults().open(comm_id);
    watch_ = core_.faults().watch([this] {
      answer_overdue();
      engine().fault_pending().store(true);
    });
  }
  ~RankOfJob() override {
    core_.faults().unwatch(watch_);
    core_.faults().close(comm_id);
  }

 private:
  std::string name_of_rank(int rank) const override {
    const Member& member = core_.members()[static_cast<std::size_t>(rank)];
    return "rank " + std::to_string(rank) + " (host " + member.host + ")";
  }
  void poll_faults(FaultNews* news) override {
    for (const Fault& fault : core_.faults().since(scope_, &seen_)) {
      if (fault.kind == Fault::Kind::left) {
        news->gone.push_back({fault.rank, {}, nanos_per_s});
      } else if (fault.kind != Fault::Kind::overdue && news->error.ok()) {
        news->error = Status(fault.code, fault.text, fault.rank).in_operation(fault.sequence);
        news->operation = fault.sequence;
      }
    }
  }
  void ask_for_late_ranks(std::uint64_t collective, const std::string& what_waits) override {
    core_.raise({Fault::Kind::overdue, rank(), comm_id, collective, Code::timeout, what_waits});
  }
  void answer_overdue() {
    for (const Fault& asked : core_.faults().since(scope_, &overdue_seen_)) {
      if (asked.kind != Fault::Kind::overdue || asked.sequence <= engine().begun()) continue;
      core_.raise({Fault::Kind::failed, rank(), comm_id, asked.sequence, Code::timeout,
                   asked.text + ": late is " + name_of_rank(rank()), rank()});
    }
  }
  void on_failure(const Status& status, std::uint64_t operation, bool tell_peers) override {
    if (!tell_peers) return;
    const int culprit = status.culprit() >= 0 ? status.culprit() : rank();
    core_.raise({Fault::Kind::failed, culprit, comm_id, operation, status.code(),
                 name_of_rank(rank()) + " reports: " + status.message(), rank()});
  }

  SessionCore& core_;
  FaultScope scope_;
  std::uint64_t seen_ = 0, overdue_seen_ = 0;
  int watch_ = 0;
};

class EngineJob : protected testing::SimulatedJob {
 protected:
  explicit EngineJob(unsigned long seed) : random_(seed) {}
  /// All ranks join, and make engines.
  void make_engines() {
    ASSERT_NO_FATAL_FAILURE(join_all());
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::uint32_t> node_of;
      for (const Member& member : ranks_[r]->core().members()) {
        node_of.push_back(static_cast<std::uint32_t>(member.node));
      }
      if (!nodes_) nodes_.emplace(node_of);
      engines_[r] = std::make_unique<RankOfJob>(*nodes_, ranks_[r]->core());
      running_.push_back(r);
    }
  }
  Engine& engine(int rank) { return engines_[rank]->engine(); }
  Nanos now() const { return simulation_.now(); }

  void stop(int rank) {
    std::erase(running_, rank);
    ranks_[rank]->stop();
  }
  void die(int rank) {
    std::erase(running_, rank);
    engines_[rank].reset();
    ranks_[rank]->die();
  }
  void leave(int rank) {
    std::erase(running_, rank);
    engines_[rank].reset();
    ranks_[rank]->leave();
  }

  /// Runs sessions and engines, and moves the clock, until done() holds; returns false if that
  /// takes longer than `limit` of the clock.
  bool run_until(const std::function<bool()>& done, Nanos limit) {
    return simulation_.run_until(
        [&] {
          while (run_engines()) simulation_.settle();
          return done();
        },
        now() + limit);
  }
  bool run_until_idle(Nanos limit) {
    const auto idle = [this](int r) { return engine(r).idle(); };
    return run_until([&] { return std::ranges::all_of(running_, idle); }, limit);
  }
  void let_pass(Nanos time) {
    ASSERT_FALSE(run_until([] { return false; }, time));
  }
  /// One round of a session or of an engine, which chance chooses.
  void step() {
    if (random_() % 2 == 0) return simulation_.step(random_);
    run_engine(running_[random_() % running_.size()]);
  }

  std::mt19937_64 random_;
  std::vector<int> running_;  // the ranks that neither have ended nor stand still

 private:
  /// Lets the engines take turns, in an order that the seed gives, until nothing moves any more.
  /// Returns true if anything moved.
  bool run_engines() {
    bool any = false;
    for (bool moved = true; moved; any |= moved) {
      moved = false;
      std::ranges::shuffle(running_, random_);
      for (const int r : running_) moved |= run_engine(r);
    }
    return any;
  }
  bool run_engine(int rank) {
    const bool moved = !engine(rank).idle() && engine(rank).run_once(now());
    if (engine(rank).idle()) engine(rank).report_failure();
    return moved;
  }

  std::optional<testing::SimulatedNodes> nodes_;
  std::unique_ptr<RankOfJob> engines_[ranks];
};

class JobSeams : public ::testing::Test, protected EngineJob {
 protected:
  JobSeams() : EngineJob(tests::seed()) {}
  void SetUp() override { make_engines(); }
  void submit_all_reduces(const std::vector<int>& of) {
    for (const int r : of)
      engine(r).submit(call_of(Collective::all_reduce, buffer_[r], buffer_[r]));
  }
  /// Ranks 0 to 2 wait for rank 3 in an all-reduce, for a second.
  void let_three_wait() {
    submit_all_reduces({0, 1, 2});
    ASSERT_NO_FATAL_FAILURE(let_pass(nanos_per_s));
    for (const int r : {0, 1, 2}) ASSERT_FALSE(engine(r).idle()) << r;
  }
  void expect_error(int rank, Code code, int culprit, const std::string& part) {
    const Status& status = engine(rank).status();
    EXPECT_EQ(code, status.code()) << rank << ": " << status.message();
    EXPECT_EQ(culprit, status.culprit()) << rank << ": " << status.message();
    EXPECT_NE(std::string::npos, status.message().find(part)) << rank << ": " << status.message();
  }

 private:
  std::vector<Values> buffer_{ranks, Values(1000)};
};

TEST_F(JobSeams, engines_of_ranks_that_have_joined_give_the_right_results) {
  for (const std::size_t count : {1U, 5U, 1000U, 20'001U}) {
    std::vector<Values> inputs, sums(ranks, Values(count)), copies;
    Values sum(count);
    for (int r = 0; r < ranks; ++r) {
      inputs.push_back(values_of(r, count));
      for (std::size_t i = 0; i < count; ++i) sum[i] += inputs[r][i];
    }
    copies = inputs;
    for (int r = 0; r < ranks; ++r) {
      engine(r).submit(call_of(Collective::all_reduce, inputs[r], sums[r]));
      engine(r).submit(call_of(Collective::broadcast, copies[r], copies[r], 2));
      engine(r).submit(Call{});  // a barrier
    }
    ASSERT_TRUE(run_until_idle(nanos_per_s)) << count;
    for (int r = 0; r < ranks; ++r) EXPECT_TRUE(engine(r).status().ok()) << r;
    EXPECT_EQ(std::vector<Values>(ranks, sum), sums) << count;
    EXPECT_EQ(std::vector<Values>(ranks, inputs[2]), copies) << count;
  }
}

TEST_F(JobSeams, rank_that_dies_is_named_by_every_engine_that_waits_for_it) {
  ASSERT_NO_FATAL_FAILURE(let_three_wait());
  die(3);
  ASSERT_TRUE(run_until_idle(nanos_per_s));
  for (const int r : {0, 1, 2}) expect_error(r, Code::remote_error, 3, "rank 3 (process");
}

TEST_F(JobSeams, rank_that_stands_still_is_named_after_the_silence_limit) {
  ASSERT_NO_FATAL_FAILURE(let_three_wait());
  stop(3);
  const Nanos limit = silence_ms * nanos_per_ms;
  ASSERT_NO_FATAL_FAILURE(let_pass(limit - limit / 10));
  for (const int r : {0, 1, 2}) ASSERT_FALSE(engine(r).idle()) << r;
  ASSERT_TRUE(run_until_idle(limit / 5));
  for (const int r : {0, 1, 2}) expect_error(r, Code::remote_error, 3, "rank 3 (process");
}

TEST_F(JobSeams, rank_that_never_calls_is_named_by_all_ranks_at_the_deadline) {
  ASSERT_NO_FATAL_FAILURE(let_three_wait());
  ASSERT_NO_FATAL_FAILURE(let_pass(deadline - 2 * nanos_per_s));
  for (const int r : {0, 1, 2}) ASSERT_FALSE(engine(r).idle()) << r;
  ASSERT_TRUE(run_until_idle(3 * nanos_per_s));
  for (const int r : {0, 1, 2}) expect_error(r, Code::timeout, 3, "late is rank 3 (host");
}

TEST_F(JobSeams, ranks_that_take_no_part_in_a_mismatch_are_told) {
  // Only ranks 2 and 3 see the mismatch: they send and receive a message of other counts.
  submit_all_reduces({0, 1});
  Values sent(1000), received(1001);
  engine(2).submit(call_of(Collective::send, sent, sent, 3));
  engine(3).submit(call_of(Collective::recv, received, received, 2));
  ASSERT_TRUE(run_until_idle(nanos_per_s));
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(Code::mismatch, engine(r).status().code()) << r;
  for (const int r : {0, 1}) {
    EXPECT_NE(std::string::npos, engine(r).status().message().find(" reports: "))
        << engine(r).status().message();
  }
}

TEST_F(JobSeams, failure_of_one_engine_is_the_error_of_all) {
  ASSERT_NO_FATAL_FAILURE(let_three_wait());
  engine(3).fail_now(Status(Code::system_error, "no memory is left", 3));
  ASSERT_TRUE(run_until_idle(nanos_per_s));
  for (const int r : {0, 1, 2}) {
    expect_error(r, Code::system_error, 3, "rank 3 (host");
    expect_error(r, Code::system_error, 3, " reports: no memory is left");
  }
}

TEST_F(JobSeams, rank_that_has_left_ends_only_calls_that_wait_for_it) {
  submit_all_reduces({0, 1, 2, 3});
  ASSERT_TRUE(run_until_idle(nanos_per_s));
  leave(3);
  Values sent = values_of(0, 1000), received(1000);
  engine(0).submit(call_of(Collective::send, sent, sent, 1));
  engine(1).submit(call_of(Collective::recv, received, received, 0));
  ASSERT_TRUE(run_until_idle(nanos_per_s));
  for (const int r : {0, 1, 2}) EXPECT_TRUE(engine(r).status().ok()) << r;
  EXPECT_EQ(sent, received);

  submit_all_reduces({0, 1, 2});
  ASSERT_TRUE(run_until_idle(3 * nanos_per_s));
  for (const int r : {0, 1, 2}) expect_error(r, Code::remote_error, 3, "has left");
}

TEST_F(JobSeams, all_ranks_leave_in_good_order) {
  submit_all_reduces({0, 1, 2, 3});
  ASSERT_TRUE(run_until_idle(nanos_per_s));
  for (int r = 0; r < ranks; ++r) {
    leave(r);
    ASSERT_NO_FATAL_FAILURE(let_pass(nanos_per_s));
    for (int other = r + 1; other < ranks; ++other) {
      EXPECT_TRUE(engine(other).status().ok()) << other << ": " << engine(other).status().message();
      EXPECT_EQ(static_cast<std::size_t>(r) + 1, ranks_[other]->core().faults().count());
      EXPECT_TRUE(ranks_[other]->knows(Fault::Kind::left, r));
    }
  }
  for (const auto& rank : ranks_) EXPECT_EQ(rank->loop().kept(), 0U);
}

enum class Event { none, death, failure, other_count };

/// A few calls, in which something happens to one rank at a moment that chance chooses.
class RandomEngineJob : private EngineJob {
 public:
  RandomEngineJob(unsigned long seed, Event event) : EngineJob(seed), event_(event) {
    make_engines();
    victim_ = static_cast<int>(random_() % ranks);
  }
  void run() {
    submit_calls();
    for (unsigned long steps = random_() % 400; steps > 0; --steps) step();
    if (event_ == Event::death) die(victim_);
    if (event_ == Event::failure) {
      engine(victim_).fail_now(Status(Code::system_error, "no memory is left", victim_));
    }
    for (int steps = 0; steps < 400; ++steps) step();
    ASSERT_TRUE(run_until_idle(5 * nanos_per_s)) << "a call does not end";
    for (const int r : running_) judge(r);
    if (event_ == Event::other_count) {
      EXPECT_LT(0, errors_);
    }
  }
  int errors() const { return errors_; }

 private:
  struct OneCall {
    Collective collective;
    std::size_t count;
    int root;
    std::vector<Values> inputs, outputs;  // by rank
    Values expected;
  };
  void submit_calls() {
    constexpr std::size_t counts[] = {1, 5, 300, 3000};
    calls_.resize(6);
    for (OneCall& call : calls_) {
      const bool rooted = random_() % 2 == 0;
      call.collective = rooted ? Collective::broadcast : Collective::all_reduce;
      call.root = rooted ? static_cast<int>(random_() % ranks) : -1;
      call.count = counts[random_() % 4];
      call.expected.assign(call.count, 0);
      for (int r = 0; r < ranks; ++r) {
        call.inputs.push_back(values_of(r, call.count + 1));
        call.outputs.emplace_back(call.count + 1);
        for (std::size_t i = 0; i < call.count && (!rooted || r == call.root); ++i) {
          call.expected[i] += call.inputs[r][i];
        }
      }
    }
    const std::size_t differs = random_() % calls_.size();
    for (int r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < calls_.size(); ++i) {
        OneCall& call = calls_[i];
        Call submitted = call_of(call.collective, call.inputs[r], call.outputs[r], call.root);
        const bool other = event_ == Event::other_count && r == victim_ && i == differs;
        submitted.count = call.count + (other ? 1 : 0);
        engine(r).submit(submitted);
      }
    }
  }
  void judge(int rank) {
    const Status& status = engine(rank).status();
    if (status.ok()) {
      // Whatever happens, it had all that its calls needed.
      for (OneCall& call : calls_) {
        call.outputs[rank].resize(call.count);
        EXPECT_EQ(call.expected, call.outputs[rank]) << "rank " << rank;
      }
      return;
    }
    ++errors_;
    const std::string text = "rank " + std::to_string(rank) + ": " + status.message();
    EXPECT_NE(Event::none, event_) << text;
    if (event_ == Event::death) {
      EXPECT_EQ(Code::remote_error, status.code()) << text;
    }
    if (event_ == Event::failure) {
      EXPECT_EQ(Code::system_error, status.code()) << text;
    }
    // Of two ranks that make different calls each names the other.
    if (event_ == Event::other_count) {
      EXPECT_EQ(Code::mismatch, status.code()) << text;
      const std::string victim = "rank " + std::to_string(victim_) + " ";
      EXPECT_NE(std::string::npos, status.message().find(victim)) << text;
    } else {
      EXPECT_EQ(victim_, status.culprit()) << text;
    }
  }

  const Event event_;
  int victim_ = 0, errors_ = 0;
  std::vector<OneCall> calls_;
};

class RandomEvent : public ::testing::TestWithParam<Event> {};

TEST_P(RandomEvent, at_any_moment_ends_the_calls_and_names_the_rank) {
  const unsigned long jobs = tests::sanitized ? 12 : 100, first = tests::seed();
  int errors = 0;
  for (unsigned long seed = first; seed < first + jobs; ++seed) {
    RandomEngineJob job(seed, GetParam());
    ASSERT_NO_FATAL_FAILURE(job.run()) << "seed " << seed;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    errors += job.errors();
  }
  EXPECT_EQ(GetParam() != Event::none, errors > 0);
}

constexpr const char* event_names[] = {"none", "death", "failure", "other_count"};
INSTANTIATE_TEST_SUITE_P(JobSeams, RandomEvent,
                         ::testing::Values(Event::none, Event::death, Event::failure,
                                           Event::other_count),
                         [](const auto& info) {
                           return event_names[static_cast<int>(info.param)];
                         });

}  // namespace
}  // namespace hocket::internal
