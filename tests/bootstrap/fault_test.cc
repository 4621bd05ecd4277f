// Which faults reach which ranks. The ranks are processes that are killed, are stopped, or leave.
#include <gtest/gtest.h>

#include <algorithm>

#include "bootstrap/job.h"

namespace hocket::internal {
namespace {

constexpr int joined = 0;  // SharedNumbers: how many ranks have joined
constexpr int learned = 1;
constexpr int go = 2;
constexpr int latest_ns = 3;  // when the last survivor had learned

void raise_to(std::atomic<std::int64_t>& number, std::int64_t value) {
  std::int64_t old = number.load();
  while (old < value && !number.compare_exchange_weak(old, value)) continue;
}

struct Case {
  const char* name;
  int ranks;
  bool share_memory;
  std::vector<int> victims;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Kills : public ::testing::TestWithParam<Case> {};

TEST_P(Kills, all_survivors_learn_which_ranks_died) {
  const Case& c = GetParam();
  Job job(c.ranks, c.share_memory);
  SharedNumbers numbers;
  Processes processes;
  for (int rank = 0; rank < c.ranks; ++rank) {
    processes.start([&, rank] {
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(rank), &session);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) return 1;
      numbers[joined].fetch_add(1);
      for (const int victim : c.victims) {
        if (!wait_fault(*session, Fault::Kind::dead, victim)) return 2;
      }
      raise_to(numbers[latest_ns], monotonic_now());
      // All ranks stay until all have the fault: a rank that leaves would end connections of
      // others.
      numbers[learned].fetch_add(1);
      const int survivors = c.ranks - static_cast<int>(c.victims.size());
      if (!numbers.reaches(learned, survivors)) return 3;
      for (const Fault& fault : session->faults()) {
        if (fault.kind == Fault::Kind::left) continue;
        EXPECT_EQ(fault.kind, Fault::Kind::dead) << fault.text;
        EXPECT_NE(std::find(c.victims.begin(), c.victims.end(), fault.rank), c.victims.end())
            << fault.text;
        const std::string pid = std::to_string(session->members()[fault.rank].pid);
        EXPECT_NE(fault.text.find("process " + pid), std::string::npos) << fault.text;
      }
      return 0;
    });
  }
  job.start();
  ASSERT_TRUE(numbers.reaches(joined, c.ranks));
  const Nanos killed = monotonic_now();
  for (const int victim : c.victims) processes.signal(victim, SIGKILL);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const bool victim = std::find(c.victims.begin(), c.victims.end(), rank) != c.victims.end();
    EXPECT_EQ(processes.wait(rank), victim ? 1000 + SIGKILL : 0) << "rank " << rank;
  }
  RecordProperty("last_survivor_us", std::to_string((numbers[latest_ns] - killed) / 1000));
}

INSTANTIATE_TEST_SUITE_P(Cases, Kills,
                         ::testing::Values(Case{"one_of_two", 2, true, {1}},
                                           Case{"one_of_four", 4, true, {2}},
                                           Case{"first_of_four", 4, true, {0}},
                                           Case{"three_of_five", 5, true, {0, 2, 4}},
                                           Case{"one_of_two_nodes", 2, false, {1}},
                                           Case{"top_of_four_nodes", 4, false, {0}},
                                           Case{"leaf_of_twelve_nodes", 12, false, {11}},
                                           Case{"leaf_beside_the_inner_node", 12, false, {10}}),
                         [](const auto& info) { return info.param.name; });

class Stops : public ::testing::TestWithParam<Case> {};

TEST_P(Stops, a_stopped_rank_is_called_silent_and_not_dead) {
  const Case& c = GetParam();
  Job job(c.ranks, c.share_memory);
  job.options.silence_ms = 600;
  SharedNumbers numbers;
  Processes processes;
  const int victim = c.victims[0];
  for (int rank = 0; rank < c.ranks; ++rank) {
    processes.start([&, rank] {
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(rank), &session);
      if (!status.ok()) return 1;
      numbers[joined].fetch_add(1);
      if (rank == victim) return numbers.reaches(learned, c.ranks - 1) ? 0 : 4;
      Fault fault;
      if (!wait_fault(*session, Fault::Kind::silent, victim, &fault)) return 2;
      EXPECT_NE(fault.text.find("sign of life for 600 ms"), std::string::npos) << fault.text;
      const Fault::Kind dead = Fault::Kind::dead;
      for (const Fault& other : session->faults()) EXPECT_NE(other.kind, dead) << other.text;
      numbers[learned].fetch_add(1);
      return numbers.reaches(learned, c.ranks - 1) ? 0 : 3;
    });
  }
  job.start();
  ASSERT_TRUE(numbers.reaches(joined, c.ranks));
  processes.signal(victim, SIGSTOP);
  ASSERT_TRUE(numbers.reaches(learned, c.ranks - 1));
  processes.signal(victim, SIGCONT);
  for (int rank = 0; rank < c.ranks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Cases, Stops,
                         ::testing::Values(Case{"a_rank", 3, true, {2}},
                                           Case{"the_first_rank", 3, true, {0}},
                                           Case{"a_node", 3, false, {2}},
                                           Case{"the_top_node", 3, false, {0}}),
                         [](const auto& info) { return info.param.name; });

TEST(Leave, is_not_called_death_though_the_process_ends_at_once) {
  for (const bool share_memory : {true, false}) {
    constexpr int ranks = 4;
    Job job(ranks, share_memory);
    SharedNumbers numbers;
    Processes processes;
    for (int rank = 0; rank < ranks; ++rank) {
      processes.start([&, rank] {
        std::shared_ptr<Session> session;
        if (!Session::join(job.of(rank), &session).ok()) return 1;
        numbers[joined].fetch_add(1);
        if (!numbers.reaches(joined, ranks)) return 2;
        if (rank != 3) {
          // In turn, so that the last ranks still receive the faults of the first: on several nodes
          // the leaves of the tree go first.
          if (!numbers.reaches(learned, 2 - rank)) return 3;
          session.reset();
          ::_exit(0);  // without any other goodbye
        }
        for (int other = 2; other >= 0; --other) {
          numbers[learned].store(2 - other);
          if (!wait_fault(*session, Fault::Kind::left, other)) return 4;
        }
        for (const Fault& fault : session->faults()) {
          EXPECT_EQ(fault.kind, Fault::Kind::left) << fault.text;
        }
        return 0;
      });
    }
    job.start();
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << rank;
  }
}

TEST(Leave, of_a_leader_that_lives_on_keeps_the_others_in_touch) {
  for (const bool share_memory : {true, false}) {
    Job job(4, share_memory);
    job.start();
    auto sessions = join_all(job);
    sessions[0].reset();  // leads the node or the tree, most likely
    ASSERT_TRUE(wait_fault(*sessions[3], Fault::Kind::left, 0));
    sessions[1]->report({Fault::Kind::failed, 1, 8, 2, Code::mismatch, "rank 1 saw a mismatch"});
    Fault fault;
    ASSERT_TRUE(wait_fault(*sessions[3], Fault::Kind::failed, 1, &fault));
    EXPECT_EQ(fault.code, Code::mismatch);
    EXPECT_EQ(fault.comm_id, 8u);
    EXPECT_EQ(fault.sequence, 2u);
    EXPECT_EQ(fault.text, "rank 1 saw a mismatch");
  }
}

TEST(Faults, reach_every_rank_once) {
  for (const bool share_memory : {true, false}) {
    Job job(20, share_memory);
    job.start();
    const auto sessions = join_all(job);
    in_threads(20, [&](int rank) {
      const Fault fault{Fault::Kind::aborted, rank % 3, 0, 0, Code::aborted, "told by many"};
      sessions[rank]->report(fault);
      sessions[rank]->report(fault);
      for (int culprit = 0; culprit < 3; ++culprit) {
        EXPECT_TRUE(wait_fault(*sessions[rank], Fault::Kind::aborted, culprit));
      }
      EXPECT_EQ(sessions[rank]->faults().size(), 3u);
      EXPECT_EQ(sessions[rank]->faults().size(), 3u);
    });
  }
}

TEST(Faults, a_watcher_may_unwatch_itself_and_does_not_run_afterwards) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  std::atomic<int> calls{0};
  std::atomic<int> token{0};
  token = sessions[0]->watch([&] {
    ++calls;
    sessions[0]->unwatch(token);
  });
  sessions[1]->report({Fault::Kind::failed, 1, 0, 1, Code::timeout, "first"});
  ASSERT_TRUE(wait_fault(*sessions[0], Fault::Kind::failed, 1));
  sessions[1]->report({Fault::Kind::aborted, 1, 0, 2, Code::aborted, "second"});
  ASSERT_TRUE(wait_fault(*sessions[0], Fault::Kind::aborted, 1));
  sessions[0]->held();  // asks the monitor thread, which has then called the watchers
  EXPECT_EQ(calls, 1);
}

TEST(Fork, a_childs_exit_and_calls_disturb_nothing_of_the_parents) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow a fork of several threads";
#endif
  Job job(3);
  SharedNumbers numbers;
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.start([&, rank] {
      std::shared_ptr<Session> session;
      if (!Session::join(job.of(rank), &session).ok()) return 1;
      Processes children(Processes::Parent::has_threads);
      for (int child = 0; child < 2; ++child) {
        children.start([&] {
          UniqueFd fd;
          EXPECT_EQ(session->fetch((rank + 1) % 3, scope_of(1), {1, 1}, in_ms(60'000), &fd).code(),
                    Code::invalid_usage);
          session.reset();
          return 0;
        });
      }
      for (int child = 0; child < 2; ++child) EXPECT_EQ(children.wait(child), 0);
      numbers[joined].fetch_add(1);
      if (!numbers.reaches(joined, 3)) return 2;
      session->report({Fault::Kind::failed, rank, 0, 1, Code::timeout, "still in touch"});
      for (int other = 0; other < 3; ++other) {
        if (!wait_fault(*session, Fault::Kind::failed, other)) return 3;
      }
      EXPECT_EQ(session->faults().size(), 3u);
      numbers[learned].fetch_add(1);
      return numbers.reaches(learned, 3) ? 0 : 4;
    });
  }
  job.start();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 0) << rank;
}

TEST(Fork, a_living_child_does_not_hide_its_parents_death) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow a fork of several threads";
#endif
  Job job(2, false);  // between nodes only the connection shows that a rank died
  SharedNumbers numbers;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      std::shared_ptr<Session> session;
      if (!Session::join(job.of(rank), &session).ok()) return 1;
      if (rank == 1 && ::fork() == 0) {
        numbers[go].store(1);
        numbers.reaches(learned, 1);
        ::_exit(0);
      }
      numbers[joined].fetch_add(1);
      Fault death;
      if (!wait_fault(*session, Fault::Kind::dead, 1, &death)) return 2;
      // A closed connection alone does not show whether the process died.
      EXPECT_NE(death.text.find(" died, or something cut its connection to rank 0: "),
                std::string::npos)
          << death.text;
      numbers[learned].store(1);
      return 0;
    });
  }
  job.start();
  ASSERT_TRUE(numbers.reaches(joined, 2));
  ASSERT_TRUE(numbers.reaches(go, 1));
  processes.signal(1, SIGKILL);
  EXPECT_EQ(processes.wait(0), 0);
}

TEST(Scale, sixty_four_processes_join) {
  for (const bool share_memory : {true, false}) {
    constexpr int ranks = 64;
    Job job(ranks, share_memory);
    SharedNumbers numbers;
    Processes processes;
    for (int rank = 0; rank < ranks; ++rank) {
      processes.start([&, rank] {
        if (!numbers.reaches(go, 1)) return 1;
        std::shared_ptr<Session> session;
        const Status status = Session::join(job.of(rank), &session);
        EXPECT_TRUE(status.ok()) << status.message();
        if (!status.ok()) return 2;
        raise_to(numbers[latest_ns], monotonic_now());
        numbers[joined].fetch_add(1);
        return numbers.reaches(joined, ranks) ? 0 : 3;
      });
    }
    job.start();
    const Nanos start = monotonic_now();
    numbers[go].store(1);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << rank;
    RecordProperty(share_memory ? "one_node_ms" : "nodes_ms",
                   std::to_string((numbers[latest_ns] - start) / nanos_per_ms));
    std::printf("64 processes as %s joined in %d ms\n", share_memory ? "one node" : "64 nodes",
                static_cast<int>((numbers[latest_ns] - start) / nanos_per_ms));
  }
}

}  // namespace
}  // namespace hocket::internal
