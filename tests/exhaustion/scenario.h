// A small job in which a rank, the victim, runs out of a resource at a chosen moment. The ranks are
// processes, forked from a test without threads. No process may hang or end by a signal. The
// failing call of the victim returns an error with a sentence, and its peers get success or an
// error in time.
#pragma once

#include <gtest/gtest.h>
#include <hocket/hocket.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "matrix/ranks.h"

namespace exhaustion {

struct Scenario {
  const char* name;
  int ranks = 2;
  int victim = 1;
  const char* transport = "shm,tcp";  // HOCKET_TRANSPORT
  bool stream = false;                // the collectives run on a host stream
};

inline constexpr int most_ranks = 3;
// Of the join, of an operation: where all must succeed, and where many will wait in vain.
inline constexpr int long_deadline_ms = 30'000, deadline_ms = 2000;
inline constexpr unsigned alarm_s = 40;  // a process that still runs then hangs: SIGALRM ends it
inline constexpr std::size_t floats = 30'000;

/// How a rank fared; lies in memory that all processes share. Zero bytes are a valid start.
struct Report {
  int result;        // of the first call that failed; 0: all succeeded
  int culprit;       // of that error
  const char* call;  // the last one made
  char after[200];   // the error of a barrier after a split that failed
  char text[600];    // the sentence of the error
  float sum;
};

struct Shared {
  std::atomic<int> has_id;  // -1: there will be none
  hocketUniqueId id;
  Report reports[most_ranks];
};

struct Injection {
  std::function<void()> arm;     // in the victim, before its first call
  std::function<void()> disarm;  // after its last call
};

/// What a rank does. Allocates nothing itself once it is armed.
class Rank {
 public:
  Rank(const Scenario& scenario, int rank, int deadline_ms, Shared* shared)
      : scenario_(scenario), rank_(rank), shared_(shared), mine_(shared->reports[rank]) {
    config_.deadline_ms = config_.join_deadline_ms = deadline_ms;
    config_.silence_ms = 2000;
    data_.assign(floats, 1);
  }

  void run(const Injection& injection) {
    const bool is_victim = rank_ == scenario_.victim;
    if (is_victim) injection.arm();
    work();
    if (is_victim) injection.disarm();
  }

 private:
  bool ok(const char* call, hocketResult_t result, hocketComm_t comm = nullptr) {
    if (mine_.result != 0) return false;
    mine_.call = call;
    if (result == hocketSuccess) return true;
    mine_.result = result;
    std::snprintf(mine_.text, sizeof mine_.text, "%s", hocketGetLastError(comm));
    hocketCommGetCulprit(comm, &mine_.culprit);
    return false;
  }

  bool get_id() {
    if (rank_ == 0) {
      const bool made = ok("hocketGetUniqueId", hocketGetUniqueId(&shared_->id));
      shared_->has_id.store(made ? 1 : -1);
    }
    while (shared_->has_id.load() == 0) ::usleep(200);
    return shared_->has_id.load() == 1;
  }

  void sum(hocketComm_t comm) {
    for (const std::size_t count : {std::size_t{2}, data_.size()}) {
      if (!ok("hocketAllReduce", hocketAllReduce(data_.data(), data_.data(), count, hocketFloat32,
                                                 hocketSum, comm, stream_))) {
        return;
      }
      if (stream_ != nullptr) await_stream();
    }
  }

  /// A point that could not be recorded is no reason to wait for it.
  void await_stream() {
    ok("hocketEventRecord", hocketEventRecord(event_, stream_));
    ok("hocketEventSynchronize", hocketEventSynchronize(event_));
    ok("hocketStreamSynchronize", hocketStreamSynchronize(stream_));
  }

  void make_stream() {
    ok("hocketStreamCreate", hocketStreamCreate(&stream_));
    ok("hocketEventCreate", hocketEventCreate(&event_));
  }

  void end_stream() {
    ok("hocketStreamDestroy", hocketStreamDestroy(stream_));
    ok("hocketEventDestroy", hocketEventDestroy(event_));
  }

  void split(hocketComm_t comm, hocketComm_t* half) {
    if (ok("hocketCommSplit", hocketCommSplit(comm, rank_ == 2 ? 1 : 0, 0, half, nullptr))) return;
    if (hocketBarrier(comm, nullptr) == hocketSuccess) return;
    std::snprintf(mine_.after, sizeof mine_.after, "%s", hocketGetLastError(comm));
  }

  void work() {
    if (!get_id()) return;
    hocketComm_t comm = nullptr, half = nullptr;
    const int n = scenario_.ranks;
    const hocketResult_t joined = hocketCommInitRankConfig(&comm, n, shared_->id, rank_, &config_);
    if (!ok("hocketCommInitRankConfig", joined)) return;
    if (scenario_.stream) make_stream();
    if (mine_.result == 0) sum(comm);
    if (mine_.result == 0) split(comm, &half);
    if (half != nullptr) sum(half);
    mine_.sum = data_[0] + data_[data_.size() - 1];
    if (half != nullptr) ok("hocketCommDestroy", hocketCommDestroy(half));
    ok("hocketCommDestroy", hocketCommDestroy(comm));
    if (scenario_.stream) end_stream();
  }

  const Scenario& scenario_;
  int rank_;
  Shared* shared_;
  Report& mine_;
  hocketConfig_t config_ = HOCKET_CONFIG_INITIALIZER;
  hocketStream_t stream_ = nullptr;
  hocketEvent_t event_ = nullptr;
  std::vector<float> data_;
};

class Job {
 public:
  Job(const Scenario& scenario, const Injection& injection, int deadline_ms) : scenario_(scenario) {
    void* memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared;
    std::fflush(nullptr);
    for (int rank = 0; rank < scenario.ranks; ++rank) {
      pids_[rank] = ::fork();
      if (pids_[rank] != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::alarm(alarm_s);
      ::setenv("HOCKET_TRANSPORT", scenario.transport, 1);
      Rank(scenario, rank, deadline_ms, shared_).run(injection);
      std::exit(0);  // with all that the library does at a process's end
    }
  }
  ~Job() { ::munmap(shared_, sizeof(Shared)); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Number of ranks whose error names the rank that could not join.
  int told_who() const { return told_who_; }
  const Report& victim() const { return shared_->reports[scenario_.victim]; }

  /// Waits for all; adds a failure for everything that must not happen.
  void judge(const std::string& when) {
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
      int status = 0;
      while (::waitpid(pids_[rank], &status, 0) < 0 && errno == EINTR) {
      }
      const Report& report = shared_->reports[rank];
      const std::string who = std::string(scenario_.name) + ", " + when + ": rank " +
                              std::to_string(rank) + (rank == scenario_.victim ? " (victim)" : "") +
                              " in " + (report.call == nullptr ? "nothing" : report.call);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << who << " ended with status " << status << ": " << report.text;
      if (report.result == 0) continue;
      EXPECT_LT(10u, std::strlen(report.text)) << who << " gave no reason for " << report.result;
      EXPECT_EQ(nullptr, std::strstr(report.after, "another thread")) << who;
      if (std::getenv("SHOW_TEXTS") != nullptr) std::printf("%s: %s\n", who.c_str(), report.text);
      if (std::strstr(report.text, "cannot join") == nullptr) continue;
      // A join that failed makes no communicator: its culprit is the thread's.
      ++told_who_;
      const std::string victim = "rank " + std::to_string(scenario_.victim) + " (process ";
      EXPECT_NE(nullptr, std::strstr(report.text, victim.c_str())) << report.text;
      EXPECT_EQ(scenario_.victim, report.culprit) << report.text;
    }
    const bool joined_all = shared_->has_id.load() == 1;
    for (int rank = 0; rank < scenario_.ranks && joined_all; ++rank) {
      // Where the last collective succeeded, its result is right.
      const Report& report = shared_->reports[rank];
      if (report.result != 0) continue;
      EXPECT_EQ(expected(rank), report.sum) << when;
    }
  }

 private:
  /// The first and the last element: summed four times (two over two elements) and twice.
  float expected(int rank) const {
    const auto all = static_cast<float>(scenario_.ranks);
    const float group = scenario_.ranks == 3 ? (rank == 2 ? 1.f : 2.f) : all;
    return all * all * group * group + all * group;
  }

  Scenario scenario_;
  Shared* shared_;
  pid_t pids_[most_ranks] = {};
  int told_who_ = 0;
};

using Injections = std::vector<std::pair<std::string, Injection>>;

/// Runs a job for each, several at once: most of them only wait. The number of those whose victim
/// had an error; the error must say `reason`.
inline int run_all(const Scenario& scenario, const Injections& injections,
                   const char* reason = "") {
  constexpr std::size_t at_once = 24;
  std::deque<std::pair<std::string, std::unique_ptr<Job>>> running;
  int errors = 0;
  const auto finish_one = [&] {
    auto [name, job] = std::move(running.front());
    running.pop_front();
    job->judge(name);
    const Report& victim = job->victim();
    errors += victim.result != 0;
    if (victim.result == 0) return;
    EXPECT_NE(nullptr, std::strstr(victim.text, reason)) << victim.text;
  };
  for (const auto& [name, injection] : injections) {
    if (running.size() == at_once) finish_one();
    running.emplace_back(name, std::make_unique<Job>(scenario, injection, deadline_ms));
  }
  while (!running.empty()) finish_one();
  return errors;
}

}  // namespace exhaustion
