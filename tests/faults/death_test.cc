// A rank dies or is stopped during its work: every other rank gets an error that names it, and no
// process or memory remains.
#include <dirent.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "faults/processes.h"
#include "seed.h"

namespace faults {
namespace {

using ranks::Env;

std::set<std::string> shared_files() {
  std::set<std::string> names;
  if (DIR* const folder = ::opendir("/dev/shm")) {
    while (const dirent* entry = ::readdir(folder)) {
      if (std::strstr(entry->d_name, "hocket") != nullptr) names.insert(entry->d_name);
    }
    ::closedir(folder);
  }
  return names;
}

/// All-reduces of one size for ever, until an error, which is kept.
void reduce_until_error(Process& self, std::size_t count, bool alloc) {
  void* memory = nullptr;
  std::vector<float> plain;
  if (alloc) {
    ASSERT_HOCKET(hocketMemAlloc(&memory, count * sizeof(float)));
  } else {
    plain.resize(count);
    memory = plain.data();
  }
  for (;;) {
    const hocketResult_t result =
        hocketAllReduce(memory, memory, count, hocketFloat32, hocketMax, self.comm, nullptr);
    if (result != hocketSuccess) {
      self.keep(result);
      break;
    }
    if (self.report().rounds == 0) {
      const char *algorithm = "", *transport = "";
      EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &algorithm, &transport));
      std::snprintf(self.report().algorithm, sizeof self.report().algorithm, "%s", algorithm);
    }
    ++self.report().rounds;
  }
  if (alloc) {
    EXPECT_HOCKET(hocketMemFree(memory));
  }
}

struct Death {
  const char* transport;
  const char* algorithm;  // empty: the selector's
  int ranks;
  std::size_t count;
  bool alloc;
  const char* nodes = "";
};

void PrintTo(const Death& death, std::ostream* out) {
  *out << death.ranks << " ranks, transport '" << death.transport << "', algorithm '"
       << death.algorithm << "', " << death.count << " floats" << (death.alloc ? " alloc" : "");
}

void expect_culprit(Job& job, int ranks, int victim) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    const Report& report = job.report(rank);
    const std::string text = report.text, name = "rank " + std::to_string(victim);
    EXPECT_EQ(hocketRemoteError, report.result) << "on rank " << rank << ": " << text;
    EXPECT_EQ(victim, report.culprit) << "on rank " << rank << ": " << text;
    EXPECT_NE(std::string::npos, text.find(name)) << "on rank " << rank << ": " << text;
  }
}

/// The latencies of all survivors.
void kill_one(const Death& death, std::mt19937_64& random, std::vector<std::int64_t>* latencies) {
  const Env env({{"HOCKET_TRANSPORT", death.transport},
                 {"HOCKET_ALGORITHM", death.algorithm},
                 {"HOCKET_NODES", death.nodes}});
  const int victim = static_cast<int>(random() % static_cast<std::uint64_t>(death.ranks));
  Job job(death.ranks);
  hocketConfig_t config = ranks::patient_config();
  // The promise, held by the library's own deadline; a busy machine is no reason to fail.
  if (ranks::long_tests()) config.deadline_ms = 1000;
  ASSERT_NO_FATAL_FAILURE(job.start(
      config, [&](Process& self) { reduce_until_error(self, death.count, death.alloc); }));
  ASSERT_NO_FATAL_FAILURE(job.await_rounds(1 + random() % 20));
  for (int rank = 0; rank < death.ranks && *death.algorithm != '\0'; ++rank) {
    EXPECT_STREQ(death.algorithm, job.report(rank).algorithm) << "on rank " << rank;
  }
  const std::int64_t killed = now_ns();
  job.kill(victim, SIGKILL);
  job.wait(victim);
  job.finish();
  expect_culprit(job, death.ranks, victim);
  for (int rank = 0; rank < death.ranks; ++rank) {
    if (rank != victim) latencies->push_back(job.report(rank).error_ns.load() - killed);
  }
}

class Killed : public testing::TestWithParam<const char*> {};

/// Every algorithm, and the choice of the selector, for small and large sizes.
std::vector<Death> deaths_over(const std::string& transport) {
  if (transport == "tcp") {
    return {
        {"tcp", "", 2, 2, false},
        {"tcp", "", 8, 1000, false},
        {"tcp", "", 2, 1 << 20, true},
        {"tcp", "one-shot", 3, 1000, false},
        {"tcp", "tree", 4, 500'000, true},
        {"tcp", "ring", 5, 200'000, false},
        {"tcp", "owner-fold", 3, 300'000, false},
    };
  }
  if (transport == "both") {
    return {
        {"", "leaders", 4, 1000, false, "2,2"},
        {"", "two-level", 4, 300'000, false, "2,2"},
        {"", "two-level", 4, 1 << 20, true, "3,1"},
        {"", "", 5, 50'000, false, "1,3,1"},
    };
  }
  return {
      {"shm", "", 3, 300'000, false},           {"shm", "", 8, 1000, false},
      {"shm", "inline", 2, 2, false},           {"shm", "one-shot", 4, 1000, false},
      {"shm", "staged", 5, 200'000, false},     {"shm", "direct", 4, 500'000, true},
      {"shm", "ring", 3, 200'000, false},       {"shm", "tree", 3, 100'000, false},
      {"shm", "owner-fold", 2, 1 << 20, false},
  };
}

TEST_P(Killed, survivors_learn_which_rank_died) {
  const std::vector<Death> kinds = deaths_over(GetParam());
  const auto before = shared_files();
  std::mt19937_64 random(tests::seed());
  std::vector<std::int64_t> latencies;
  const std::size_t loops = ranks::long_tests() ? 100 : kinds.size();
  for (std::size_t i = 0; i < loops && !HasFailure(); ++i) {
    if (ranks::sanitized && i % 2 == 1) continue;  // processes take long to begin and to end
    const Death& death = kinds[i % kinds.size()];
    SCOPED_TRACE(testing::PrintToString(death) + ", loop " + std::to_string(i));
    kill_one(death, random, &latencies);
  }
  std::printf("from SIGKILL to the survivors' errors over %s: %s\n", GetParam(),
              summary(latencies).c_str());
  RecordProperty("latencies", summary(latencies));
  EXPECT_EQ(before, shared_files()) << "files were left in /dev/shm";
}
INSTANTIATE_TEST_SUITE_P(Transports, Killed, testing::Values("shm", "tcp", "both"),
                         [](const auto& info) { return std::string(info.param); });

class Stopped : public testing::TestWithParam<const char*> {};

TEST_P(Stopped, survivors_learn_which_rank_fell_silent) {
  const Env env({{"HOCKET_TRANSPORT", GetParam()}, {"HOCKET_SILENCE_MS", "3000"}});
  constexpr int ranks = 3, victim = 1;
  Job job(ranks);
  hocketConfig_t config = ranks::patient_config();
  ASSERT_NO_FATAL_FAILURE(
      job.start(config, [](Process& self) { reduce_until_error(self, 1000, false); }));
  ASSERT_NO_FATAL_FAILURE(job.await_rounds(3));
  job.kill(victim, SIGSTOP);
  for (int rank : {0, 2}) {
    const int status = job.wait(rank);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << job.report(rank).text;
  }
  job.kill(victim, SIGKILL);
  job.wait(victim);
  expect_culprit(job, ranks, victim);
}
INSTANTIATE_TEST_SUITE_P(Transports, Stopped, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

/// A sum, as an operator of the user. context: a std::size_t; when that many elements have been
/// added, the process stops itself, in the middle of the library's fold. 0: never.
void add_until_stop(void* context, const void* in, void* inout, std::size_t count,
                    hocketDataType_t /*datatype*/) {
  const auto* const from = static_cast<const std::uint32_t*>(in);
  auto* const to = static_cast<std::uint32_t*>(inout);
  std::transform(from, from + count, to, to, std::plus<>());
  std::size_t& left = *static_cast<std::size_t*>(context);
  if (left == 0) return;
  left -= std::min(left, count);
  if (left == 0) ::raise(SIGSTOP);
}

/// A rank stands still in the middle of a direct all-reduce. The other ranks (the survivors) take
/// it for silent. Then the rank goes on, and writes into the outputs of the survivors: these writes
/// must not reach the buffers that the survivors use.
TEST(LateWriter, does_not_reach_a_buffer_after_its_error) {
  const Env env(
      {{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "direct"}, {"HOCKET_SILENCE_MS", "2000"}});
  constexpr int ranks = 3, victim = 2;
  constexpr std::size_t count = 1 << 18;
  Job job(ranks);
  const auto body = [](Process& self) {
    void* memory = nullptr;
    ASSERT_HOCKET(hocketMemAlloc(&memory, count * sizeof(std::uint32_t)));
    auto* const words = static_cast<std::uint32_t*>(memory);
    std::size_t left = 0;
    hocketRedOp_t sum{};
    ASSERT_HOCKET(hocketRedOpCreateUser(&sum, add_until_stop, &left, 1, "sum", self.comm));
    const auto reduce = [&] {
      std::fill(words, words + count, 1 + static_cast<std::uint32_t>(self.rank));
      return hocketAllReduce(words, words, count, hocketUint32, sum, self.comm, nullptr);
    };
    // Only `direct` writes into the buffers of peers.
    ASSERT_HOCKET(reduce());
    const char *algorithm = "", *transport = "";
    ASSERT_HOCKET(hocketCommLastAlgorithm(self.comm, &algorithm, &transport));
    ASSERT_STREQ("direct", algorithm);
    // The victim adds the elements of its block twice, because there are three inputs. So it stops
    // half-way, before it writes the second half of its block into the output of every rank.
    if (self.rank == victim) left = count / ranks;
    hocketResult_t result = reduce();
    // The victim's call succeeds if the survivors have done their part of it. Its next call cannot.
    if (self.rank == victim && result == hocketSuccess) result = reduce();
    self.keep(result);
    const std::vector<std::uint32_t> then(words, words + count);
    self.report().phase = 1;
    // The late writer goes on now, and ends.
    self.await_phase(1);
    EXPECT_EQ(0, std::memcmp(then.data(), words, count * sizeof(std::uint32_t)))
        << "the buffer changed after the error";
    EXPECT_HOCKET(hocketMemFree(memory));
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  for (int rank : {0, 1}) {
    ASSERT_NO_FATAL_FAILURE(job.await([&] { return job.report(rank).phase == 1; }));
  }
  job.kill(victim, SIGCONT);
  ASSERT_NO_FATAL_FAILURE(job.await([&] { return job.report(victim).phase == 1; }));
  job.shared().phase = 1;
  job.finish();
  // It gets the error of the others, long before its deadline.
  EXPECT_EQ(hocketRemoteError, job.report(victim).result) << job.report(victim).text;
  expect_culprit(job, ranks, victim);
}

/// Broadcasts from rank 0 of 1, 2, ..., until an error, which is kept.
void broadcast_until_error(Process& self) {
  for (;;) {
    auto& rounds = self.report().rounds;
    const std::uint64_t next = rounds + 1;
    std::uint64_t x = self.rank == 0 ? next : 0;
    const hocketResult_t result = hocketBroadcast(&x, &x, 1, hocketUint64, 0, self.comm, nullptr);
    if (result != hocketSuccess) return self.keep(result);
    ASSERT_EQ(next, x);
    ++rounds;
  }
}

/// A broadcast of a few bytes does not make its root wait, for up to seven calls.
class DeathAhead : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int ranks_ = 3;
  static constexpr std::uint64_t most_ahead_ = 7;
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(DeathAhead, of_the_root_reaches_peers_that_have_not_begun_its_calls) {
  Job job(ranks_);
  const auto body = [](Process& self) {
    ASSERT_HOCKET(hocketBarrier(self.comm, nullptr));
    if (self.rank != 0) {
      self.report().phase = 1;
      self.await_phase(1);  // rank 0 is dead
      return broadcast_until_error(self);
    }
    for (std::uint64_t x = 1; x <= most_ahead_; ++x) {
      ASSERT_HOCKET(hocketBroadcast(&x, &x, 1, hocketUint64, 0, self.comm, nullptr));
    }
    self.report().phase = 1;
    self.await_phase(2);
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  for (int rank = 0; rank < ranks_; ++rank) {
    ASSERT_NO_FATAL_FAILURE(job.await([&] { return job.report(rank).phase == 1; }));
  }
  job.kill(0, SIGKILL);
  job.wait(0);
  job.shared().phase = 1;
  job.finish();
  expect_culprit(job, ranks_, 0);
  for (int rank = 1; rank < ranks_; ++rank) {
    EXPECT_LE(job.report(rank).rounds, most_ahead_) << "on rank " << rank;
  }
}

TEST_P(DeathAhead, of_a_late_rank_ends_the_root_that_is_ahead_of_it) {
  constexpr int late = 2;
  Job job(ranks_);
  const auto body = [](Process& self) {
    ASSERT_HOCKET(hocketBarrier(self.comm, nullptr));
    if (self.rank == late) self.await_phase(1);  // never: it is killed
    broadcast_until_error(self);
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  for (int rank = 0; rank < late; ++rank) {
    ASSERT_NO_FATAL_FAILURE(job.await([&] { return job.report(rank).rounds >= most_ahead_; }));
  }
  job.kill(late, SIGKILL);
  job.wait(late);
  job.finish();
  expect_culprit(job, ranks_, late);
}
INSTANTIATE_TEST_SUITE_P(Transports, DeathAhead, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Death, is_noticed_after_a_split_communicator_was_destroyed) {
  constexpr int ranks = 3, victim = 1;
  Job job(ranks);
  const auto body = [](Process& self) {
    hocketComm_t half = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &half, nullptr));
    ASSERT_HOCKET(hocketBarrier(half, nullptr));
    ASSERT_HOCKET(hocketCommDestroy(half));
    reduce_until_error(self, 100, false);
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  ASSERT_NO_FATAL_FAILURE(job.await_rounds(20));
  job.kill(victim, SIGKILL);
  job.wait(victim);
  job.finish();
  expect_culprit(job, ranks, victim);
}

}  // namespace
}  // namespace faults
