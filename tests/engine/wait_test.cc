// How ranks wait. The tests check states, not times: which phase follows from cores, ranks and run
// delay; events between the announcement of a sleep and the sleep; the wait for the cause of a
// broken link; deadlines and log lines on a clock that only the test moves.
#include "engine/wait.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/unique_fd.h"
#include "transport/shm/board.h"

namespace hocket::internal {
namespace {

constexpr Nanos ms = nanos_per_ms;

TEST(WaitPolicy, polls_long_on_a_core_of_its_own_and_gives_a_shared_core_away_after_each_poll) {
  const Oversubscription alone(1), two_ranks(2);
  EXPECT_FALSE(alone.shares_core());
  EXPECT_TRUE(two_ranks.shares_core());
  const WaitPolicy own = alone.policy(), shared = two_ranks.policy();
  EXPECT_EQ(1000u, own.polls) << "no clock, no system call before that";
  EXPECT_EQ(1000u, own.polls_by_calls);
  EXPECT_EQ(WaitPhase::spin, own.phase(0));
  EXPECT_EQ(WaitPhase::spin, own.phase(99'000));
  EXPECT_EQ(WaitPhase::yield, own.phase(100'000));
  EXPECT_EQ(WaitPhase::sleep, own.phase(1'000'000));
  EXPECT_EQ(1u, shared.polls);
  EXPECT_EQ(1u, shared.polls_by_calls);
  EXPECT_EQ(WaitPhase::yield, shared.phase(0)) << "it never spins";
  EXPECT_EQ(WaitPhase::sleep, shared.phase(500'000));
}

TEST(Oversubscription, follows_the_run_delay_where_ranks_have_a_core_each) {
  const std::thread::id here = std::this_thread::get_id();
  Oversubscription load(1);
  ASSERT_TRUE(load.is_due(0));
  load.look(here, 0, 500 * ms);  // earlier delay does not count
  EXPECT_FALSE(load.shares_core());
  EXPECT_FALSE(load.is_due(9 * ms)) << "the file is read at most once in 10 ms";
  ASSERT_TRUE(load.is_due(10 * ms));
  load.look(here, 10 * ms, 500 * ms + 900'000);
  EXPECT_FALSE(load.shares_core()) << "9 % of the time";
  load.look(here, 20 * ms, 502 * ms);
  EXPECT_TRUE(load.shares_core()) << "11 % of the time";
  EXPECT_EQ(32u, load.policy().polls) << "for a peer with a core of its own";
  EXPECT_EQ(1u, load.policy().polls_by_calls) << "each poll makes system calls";
  EXPECT_EQ(WaitPhase::yield, load.policy().phase(0)) << "it never spins";
  load.look(here, 1019 * ms, 502 * ms);
  EXPECT_TRUE(load.shares_core()) << "for a second";
  load.look(here, 1029 * ms, 502 * ms);
  EXPECT_FALSE(load.shares_core()) << "and then the core is its own again";
  EXPECT_EQ(1000u, load.policy().polls);
}

TEST(WaitPolicy, of_a_worker_sleeps_after_a_few_polls_while_no_thread_waits_for_its_stream) {
  const Oversubscription alone(1);
  const auto sleeps_soon = [&] {
    const WaitPolicy& policy = alone.policy();
    return policy.polls == 16 && policy.phase(0) == WaitPhase::sleep;
  };
  Waiters waiters;
  driven_for = &waiters;
  EXPECT_TRUE(sleeps_soon());
  {
    const Waiters::Scope waits(waiters);
    EXPECT_FALSE(sleeps_soon());
  }
  EXPECT_TRUE(sleeps_soon());
  waiters.ask();
  EXPECT_FALSE(sleeps_soon()) << "a thread asks again and again";
  EXPECT_TRUE(sleeps_soon()) << "it has stopped asking";
  driven_for = nullptr;
  EXPECT_FALSE(sleeps_soon()) << "of a thread's own calls";
}

TEST(Oversubscription, compares_no_thread_with_another_and_needs_no_schedstat) {
  std::thread::id other;
  std::thread([&other] { other = std::this_thread::get_id(); }).join();
  Oversubscription load(0.5);
  load.look(std::this_thread::get_id(), 0, 0);
  load.look(other, 10 * ms, 9'000 * ms);
  EXPECT_FALSE(load.shares_core()) << "the other thread may have waited before it came here";
  load.look(other, 20 * ms, {});
  EXPECT_FALSE(load.shares_core());
  load.look(other, 30 * ms, 9'010 * ms);
  EXPECT_TRUE(load.shares_core());
}

TEST(Oversubscription, by_ranks_holds_for_good_and_asks_nothing_of_the_kernel) {
  Oversubscription crowded(2);
  EXPECT_FALSE(crowded.is_due(0));
  crowded.look(std::this_thread::get_id(), 0, 0);
  crowded.look(std::this_thread::get_id(), 5'000 * ms, 0);
  EXPECT_TRUE(crowded.shares_core());
}

/// Local ranks that share a board; the engine is rank 0, the test the others.
class OneRank final : private EngineHost {
 public:
  explicit OneRank(std::vector<Transport*> transports, int ranks = 2) {
    memory_.resize(Board::bytes(ranks) + 4096);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    board = Board(memory_.data() + (4096 - at % 4096), ranks, 0);
    EngineOptions options;
    options.ranks = ranks;
    options.deadline = nanos_per_s;
    options.late_log = 300 * ms;
    Links links;
    links.board = &board;
    for (int rank = 0; rank < ranks; ++rank) links.ranks_of_node.push_back(rank);
    links.regions = &regions_;
    SelectorOptions selector;
    selector.ranks = ranks;
    selector.one_node = true;
    selector.board_scratch_bytes = board.scratch_bytes();
    EngineHost& host = *this;
    engine = std::make_unique<Engine>(host, options, std::move(links), std::move(transports),
                                      std::make_unique<Selector>(selector));
  }
  /// A peer arrives at a barrier, and does not ring.
  void peer_arrives(std::uint64_t sequence = 1, int peer = 1) {
    ArrivalLine& line = board.arrival(peer, sequence);
    line.fingerprint = board.arrival(0, sequence).fingerprint;
    line.sequence.store(sequence, std::memory_order_release);
    CallRecord& record = board.call(peer, sequence);
    record.fingerprint = board.call(0, sequence).fingerprint.load();
    record.collective = sequence;
    board.progress(peer).begun.store(sequence, std::memory_order_release);
  }
  Board board;
  std::unique_ptr<Engine> engine;
  Status fault;
  std::uint64_t failed_operation = 0;
  bool told = false;
  int rings = 0;
  int reports = 0;

 private:
  std::string name_of_rank(int rank) const override { return "rank " + std::to_string(rank); }
  void ring(int local_rank) override {
    EXPECT_NE(0, local_rank);
    ++rings;
  }
  void poll_faults(FaultNews* news) override {
    news->error = fault;
    news->operation = failed_operation;
  }
  void ask_for_late_ranks(std::uint64_t, const std::string&) override {}
  bool export_region(std::uint64_t) override { return false; }
  void on_failure(const Status&, std::uint64_t, bool tell_peers) override {
    ++reports;
    told = tell_peers;
  }
  std::byte* private_scratch(std::size_t) override { return nullptr; }
  Status map_remote(int, RegionOffset, std::size_t, std::uint64_t, std::byte**) override {
    return internal_error("no peer maps memory here");
  }

  std::vector<std::byte> memory_;
  Regions regions_;
};

/// Carries nothing. It is polled in every round of the engine, as long as the engine has work.
class Lookout final : public Transport {
 public:
  std::function<void()> when_polled;
  const char* name() const override { return "lookout"; }
  bool reaches(int) const override { return false; }
  void post_send(Transfer&) override {}
  void post_recv(Transfer&) override {}
  bool poll() override {
    if (when_polled) when_polled();
    return false;
  }
  void cancel(const Status&) override {}
  void close() override {}
  int wait_descriptor() const override { return descriptor; }
  std::uint64_t latest_sequence_from(int) const override { return 0; }
  bool is_active() const override { return has_work; }
  bool has_work = true;
  int descriptor = -1;
};

/// On a core with load, of a rank that waits for its peer: the polls after which it has rung the
/// peer. It does so before it first yields, or else after the polls that Ring.* tests.
int polls_before_a_ring(int descriptor) {
  Lookout lookout;
  lookout.descriptor = descriptor;
  OneRank rank({&lookout});
  Oversubscription load(1);
  const Nanos now = monotonic_now();
  load.look(std::this_thread::get_id(), now, 0);
  load.look(std::this_thread::get_id(), now + 10 * ms, 5 * ms);
  int polls = 0, rung_after = 0;
  lookout.when_polled = [&] {
    if (rank.rings > 0 && rung_after == 0) rung_after = polls;
    if (++polls == 32) rank.peer_arrives();
  };
  rank.engine->submit(Call{});
  const Sleeper sleeper{rank.engine.get(), &rank.board, -1};
  drive({&sleeper, 1}, load);
  EXPECT_TRUE(rank.engine->status().ok()) << rank.engine->status().message();
  return rung_after;
}

TEST(WaitPolicy, of_a_loaded_core_yields_soon_while_the_rank_waits_for_sockets) {
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  EXPECT_EQ(2, polls_before_a_ring(event.get()));
  EXPECT_LT(10, polls_before_a_ring(-1)) << "only peers of this node";
}

TEST(Sleep, is_not_begun_when_a_peer_published_before_it_could_see_the_announcement) {
  Lookout lookout;
  OneRank rank({&lookout});
  int slept = 0;
  // The peer publishes after this rank's last look while awake. It reads the doorbell before the
  // announcement reaches it, and so does not ring: only the look after the announcement finds it.
  lookout.when_polled = [&] {
    if (rank.board.doorbell(0).asleep.load() == Board::awake) return;
    ++slept;
    rank.peer_arrives();
  };
  rank.engine->submit(Call{});
  const Sleeper sleeper{rank.engine.get(), &rank.board, -1};
  Oversubscription shared(2);
  drive({&sleeper, 1}, shared);
  EXPECT_TRUE(rank.engine->status().ok()) << rank.engine->status().message();
  EXPECT_EQ(1, slept);
  EXPECT_EQ(Board::awake, rank.board.doorbell(0).asleep.load());
}

TEST(Ring, follows_a_publication_when_nothing_else_is_to_be_done) {
  OneRank rank({});
  rank.engine->submit(Call{});  // publishes that rank 0 has come
  for (int polls = 0; polls < 15; ++polls) rank.engine->run_once({});
  EXPECT_EQ(0, rank.rings) << "the peer most likely polls";
  for (int polls = 0; polls < 15; ++polls) rank.engine->run_once({});
  EXPECT_EQ(1, rank.rings) << "once for all that was published";
  rank.peer_arrives(1);
  while (!rank.engine->idle()) rank.engine->run_once({});
  rank.engine->submit(Call{});
  rank.peer_arrives(2);
  while (!rank.engine->idle()) rank.engine->run_once({});
  EXPECT_EQ(2, rank.rings) << "at the end of the operation";
}

/// Barriers from number `first` to `last` of the board; each ends with a look for sleeping peers.
void run_barriers(OneRank& rank, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t sequence = first; sequence <= last; ++sequence) {
    rank.engine->submit(Call{});
    rank.peer_arrives(sequence);
    while (!rank.engine->idle()) rank.engine->run_once({});
  }
}

TEST(Ring, needs_no_fence_once_all_ranks_take_barriers_and_this_rank_has_not_slept_for_long) {
  OneRank rank({});
  const std::atomic<std::uint32_t>& makes_barrier = rank.board.doorbell(0).makes_barrier;
  rank.board.doorbell(0).takes_barriers = 1;
  run_barriers(rank, 1, 2048);
  EXPECT_EQ(0u, makes_barrier) << "a barrier of this rank would not reach its peer";
  rank.board.doorbell(1).takes_barriers = 1;
  run_barriers(rank, 2049, 3072);
  EXPECT_EQ(0u, makes_barrier);
  rank.board.announce_sleep(Board::asleep_in_poll);
  rank.board.announce_awake();
  run_barriers(rank, 3073, 3 * 2048 - 1);
  EXPECT_EQ(0u, makes_barrier) << "1024 publications per rank have not followed the sleep";
  run_barriers(rank, 3 * 2048, 3 * 2048);
  EXPECT_EQ(1u, makes_barrier);
  rank.board.announce_sleep(Board::asleep_in_poll);
  EXPECT_EQ(0u, makes_barrier) << "one barrier has been made";
}

TEST(Ring, is_left_out_for_a_peer_that_is_awake_and_makes_a_barrier_before_it_sleeps) {
  OneRank rank({});
  rank.board.doorbell(1).makes_barrier = 1;
  run_barriers(rank, 1, 1);
  EXPECT_EQ(0, rank.rings);
  rank.board.doorbell(1).asleep = Board::asleep_in_poll;
  run_barriers(rank, 2, 2);
  EXPECT_EQ(1, rank.rings);
}

TEST(Ring, follows_a_call_that_has_ended_when_it_is_submitted) {
  Lookout lookout;
  OneRank rank({&lookout});
  int value = 7;
  const Call broadcast{Collective::broadcast, &value, &value, 1, Dtype::int32, Op::sum, 0};
  rank.engine->submit(broadcast);
  EXPECT_TRUE(rank.engine->idle()) << "the root waits for nobody";
  EXPECT_FALSE(rank.engine->settle()) << "a transport still has work";
  EXPECT_EQ(0, rank.rings);
  lookout.has_work = false;
  EXPECT_TRUE(rank.engine->settle());
  EXPECT_EQ(1, rank.rings) << "a peer may sleep";
  EXPECT_TRUE(rank.engine->settle());
  EXPECT_EQ(1, rank.rings);
  rank.fault = Status(Code::remote_error, "rank 1 died", 1);
  rank.engine->fault_pending() = true;
  EXPECT_FALSE(rank.engine->settle()) << "a round must look at the fault";
}

TEST(Deadline, counts_from_the_beginning_of_each_operation) {
  OneRank rank({});
  rank.engine->submit(Call{});
  rank.engine->run_once(1'000 * ms);
  rank.engine->run_once(1'900 * ms);
  rank.peer_arrives(1);
  while (!rank.engine->idle()) rank.engine->run_once({});
  rank.engine->submit(Call{});
  rank.engine->run_once(1'950 * ms);
  rank.engine->run_once(2'949 * ms);
  EXPECT_TRUE(rank.engine->status().ok()) << rank.engine->status().message();
  rank.engine->run_once(2'950 * ms);
  EXPECT_EQ(Code::timeout, rank.engine->status().code());
  EXPECT_EQ(1, rank.engine->status().culprit());
}

TEST(Deadline, names_the_ranks_that_have_not_come_and_no_others) {
  OneRank rank({}, 4);
  rank.engine->submit(Call{});
  rank.peer_arrives(1, 2);
  rank.engine->run_once(1'000 * ms);
  rank.engine->run_once(2'000 * ms);
  const Status& status = rank.engine->status();
  EXPECT_EQ(Code::timeout, status.code());
  EXPECT_EQ(1, status.culprit());
  EXPECT_NE(std::string::npos, status.message().find("still waits for rank 1, rank 3;"))
      << status.message();
}

TEST(Deadline, that_has_not_passed_is_no_error_but_the_late_rank_is_logged) {
  static std::vector<std::string> lines;
  lines.clear();
  set_log_sink([](int, const char* line, void*) { lines.push_back(line); }, nullptr);
  OneRank rank({});
  rank.engine->submit(Call{});
  rank.engine->run_once(5'000 * ms);
  rank.engine->run_once(5'299 * ms);
  EXPECT_EQ(0u, lines.size());
  rank.engine->run_once(5'300 * ms);
  rank.engine->run_once(5'599 * ms);
  EXPECT_EQ(1u, lines.size());
  rank.engine->run_once(5'601 * ms);
  ASSERT_EQ(2u, lines.size());
  EXPECT_NE(std::string::npos, lines[1].find("for rank 1 (alive, but late)")) << lines[1];
  EXPECT_TRUE(rank.engine->status().ok()) << rank.engine->status().message();
  set_log_sink(nullptr, nullptr);
}

const Status lost(Code::remote_error, "lost the connection to rank 1", 1);

TEST(BrokenLink, waits_for_the_fault_that_explains_it_without_holding_the_loop_up) {
  OneRank rank({});
  rank.engine->submit(Call{});
  rank.engine->fail(lost);
  EXPECT_FALSE(rank.engine->run_once({}));
  EXPECT_FALSE(rank.engine->run_once(1'000 * ms));
  EXPECT_FALSE(rank.engine->run_once(1'499 * ms));
  EXPECT_FALSE(rank.engine->idle());
  EXPECT_TRUE(rank.engine->status().ok());
  rank.fault = Status(Code::remote_error, "rank 1 was killed by signal 9", 1);
  rank.engine->fault_pending().store(true);
  EXPECT_TRUE(rank.engine->run_once({}));
  EXPECT_TRUE(rank.engine->idle());
  EXPECT_EQ(rank.fault.message(), rank.engine->status().message());
  rank.engine->report_failure();
  EXPECT_EQ(1, rank.reports);
  EXPECT_FALSE(rank.told) << "the others know of a fault";
}

/// The peer saw the link break too, and its report of that comes first.
TEST(BrokenLink, that_the_peer_blames_on_this_rank_keeps_the_error_of_this_rank) {
  OneRank rank({});
  rank.engine->submit(Call{});
  rank.engine->fail(lost);
  rank.fault = Status(Code::remote_error, "rank 1 reports: lost the connection to rank 0", 0);
  rank.engine->fault_pending().store(true);
  EXPECT_TRUE(rank.engine->run_once({}));
  EXPECT_EQ(lost.message(), rank.engine->status().message());
  EXPECT_EQ(1, rank.engine->status().culprit());
  rank.engine->report_failure();
  EXPECT_TRUE(rank.told);
}

TEST(Fault, in_a_later_operation_lets_the_one_before_it_end) {
  for (const std::uint64_t failed : {1, 2}) {
    OneRank rank({});
    rank.engine->submit(Call{});  // operation 1
    rank.fault = Status(Code::mismatch, "rank 1 made another call", 1);
    rank.failed_operation = failed;
    rank.engine->fault_pending().store(true);
    for (int polls = 0; polls < 20; ++polls) rank.engine->run_once({});
    EXPECT_EQ(failed == 2, rank.engine->status().ok());
    if (failed == 1) continue;
    rank.peer_arrives();
    rank.engine->run_once({});
    EXPECT_TRUE(rank.engine->idle());
    EXPECT_TRUE(rank.engine->status().ok()) << "what rank 1 had ended before, this rank ends too";
    rank.engine->run_once({});
    EXPECT_EQ(rank.fault.message(), rank.engine->status().message());
  }
}

TEST(BrokenLink, that_nothing_explains_is_the_error_after_half_a_second) {
  OneRank rank({});
  rank.engine->submit(Call{});
  rank.engine->fail(lost);
  EXPECT_FALSE(rank.engine->run_once(1'000 * ms));
  EXPECT_TRUE(rank.engine->run_once(1'500 * ms));
  EXPECT_EQ(lost.message(), rank.engine->status().message());
  EXPECT_TRUE(rank.engine->idle());
  rank.engine->report_failure();
  EXPECT_TRUE(rank.told);
}

TEST(Failure, is_reported_once_outside_of_the_loop_and_before_drive_returns) {
  OneRank rank({}), driven({});
  rank.engine->submit(Call{});
  rank.engine->fail(Status(Code::mismatch, "ranks disagree"));
  EXPECT_FALSE(rank.engine->run_once({}));
  EXPECT_EQ(0, rank.reports) << "a report may wait, a round of the engine does not";
  EXPECT_TRUE(rank.engine->has_unreported_failure());
  rank.engine->report_failure();
  rank.engine->report_failure();
  EXPECT_EQ(1, rank.reports);
  EXPECT_FALSE(rank.engine->has_unreported_failure());

  driven.fault = Status(Code::remote_error, "rank 1 was killed by signal 9", 1);
  driven.engine->fault_pending().store(true);
  driven.engine->submit(Call{});
  const Sleeper sleeper{driven.engine.get(), &driven.board, -1};
  Oversubscription shared(2);
  drive({&sleeper, 1}, shared);
  EXPECT_EQ(driven.fault.message(), driven.engine->status().message());
  EXPECT_EQ(1, driven.reports);
}

TEST(BrokenLink, is_the_error_at_once_where_the_caller_fails_too) {
  OneRank rank({});
  rank.engine->fail(lost);
  EXPECT_FALSE(rank.engine->idle());
  rank.engine->fail_now(out_of_memory());
  EXPECT_TRUE(rank.engine->idle());
  EXPECT_EQ(lost.message(), rank.engine->status().message());
}

TEST(BrokenLink, leaves_any_other_error_as_it_is) {
  OneRank rank({});
  rank.engine->fail(Status(Code::mismatch, "ranks disagree"));
  EXPECT_EQ(Code::mismatch, rank.engine->status().code());
}

}  // namespace
}  // namespace hocket::internal
