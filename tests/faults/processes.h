// Jobs of processes, for tests of faults. The processes are forked from a test that has no threads,
// so that each child starts in a clean state. The ranks report through memory that they share with
// the test.
#pragma once

#include <gtest/gtest.h>
#include <hocket/hocket.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "matrix/ranks.h"
#include "threads.h"

namespace faults {

inline std::int64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

/// The report of a rank to the test.
struct Report {
  std::atomic<std::uint64_t> rounds;  // calls that have succeeded
  std::atomic<int> phase;             // as the body likes
  std::atomic<std::int64_t> error_ns;
  std::int64_t joined_ns;
  int result, culprit;
  char text[1000];
  char algorithm[16];  // of the first call, if the body stores it
  std::uint64_t figures[32];
};

/// Zero bytes are a valid start.
struct Shared {
  std::atomic<int> has_id;
  std::atomic<int> phase;  // of the whole job, as the test likes
  hocketUniqueId id;
  Report reports[64];
};

struct Process {
  int rank, ranks;
  hocketComm_t comm;
  Shared* shared;
  Report& report() { return shared->reports[rank]; }

  /// Keeps a call's error, with the moment.
  void keep(hocketResult_t result) { keep(result, comm); }
  /// of: the communicator whose error it is; null: the error is this thread's last one.
  void keep(hocketResult_t result, hocketComm_t of) {
    Report& mine = report();
    mine.error_ns = now_ns();
    mine.result = result;
    mine.culprit = -1;
    hocketCommGetCulprit(of, &mine.culprit);
    std::snprintf(mine.text, sizeof mine.text, "%s", hocketGetLastError(of));
  }
  /// Until the job's phase is at least that. Polls: the test ends the job if that never comes.
  void await_phase(int phase) const {
    while (shared->phase.load() < phase) ::usleep(1000);
  }
  /// Until all ranks have come here, once in a job: the process of rank 0 answers ranks whose join
  /// fails late.
  void await_all() const {
    ++shared->phase;
    await_phase(ranks);
  }
};

/// A job of its own for all ranks: its id, on every rank.
inline hocketUniqueId share_new_id(Process& self) {
  hocketUniqueId id{};
  if (self.rank == 0) {
    EXPECT_HOCKET(hocketGetUniqueId(&id));
  }
  EXPECT_HOCKET(hocketBroadcast(&id, &id, sizeof id, hocketUint8, 0, self.comm, nullptr));
  return id;
}

using Body = std::function<void(Process&)>;

/// The seconds after which a process that hangs is ended by its alarm, and the test fails. With
/// LONG_TESTS and a sanitizer 7 ranks on 2 cores need more than 300 s for all their cases.
inline unsigned alarm_s() { return ranks::long_tests() ? 3600 : 300; }

/// Waits until the first process has ended: the status of waitpid. Shortly before the alarm of
/// processes that began now, the stacks of all of them are printed, by gdb if there is one.
inline int status_at_end_of(pid_t first, const std::vector<pid_t>& others = {}) {
  const std::int64_t hangs_ns = now_ns() + (alarm_s() - 30) * 1'000'000'000LL;
  bool told = false;
  for (;;) {
    int status = 0;
    if (::waitpid(first, &status, WNOHANG) == first) return status;
    if (!told && now_ns() > hangs_ns) {
      std::vector<pid_t> all{first};
      all.insert(all.end(), others.begin(), others.end());
      for (const pid_t pid : all) {
        const std::string id = std::to_string(pid);
        const std::string stacks = "echo process " + id + " hangs; timeout 9 gdb -p " + id +
                                   " -batch -ex 'thread apply all backtrace' 2>&1 | grep '^[T#]'";
        (void)!std::system(stacks.c_str());
      }
      told = true;
    }
    ::usleep(300);
  }
}

/// True if a check of the running test has failed since the test had that many results. A forked
/// process has the results of the process that forked it.
inline bool has_failed_since(int results) {
  const testing::TestResult& all = *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = results; i < all.total_part_count(); ++i) {
    if (all.GetTestPartResult(i).failed()) return true;
  }
  return false;
}
inline int results_until_now() {
  return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

class Job {
 public:
  explicit Job(int ranks) : ranks_(ranks) {
    void* memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared;
  }
  ~Job() {
    for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) {
      if (pids_[rank] <= 0) continue;
      ::kill(pids_[rank], SIGKILL);
      wait(rank);
    }
    ::munmap(shared_, sizeof(Shared));
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Shared& shared() { return *shared_; }
  Report& report(int rank) { return shared_->reports[rank]; }
  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }

  /// Starts all ranks: each joins with that configuration, then runs body.
  void start(const hocketConfig_t& config, const Body& body) {
    tests::await_end_of_threads();
    for (int rank = 0; rank < ranks_; ++rank) {
      std::fflush(nullptr);
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) run(rank, config, body);
      pids_.push_back(pid);
    }
  }

  void kill(int rank, int signal) { ASSERT_EQ(0, ::kill(pid(rank), signal)); }

  /// Until it has ended: the status of waitpid.
  int wait(int rank) {
    std::vector<pid_t> others;
    std::copy_if(pids_.begin() + rank + 1, pids_.end(), std::back_inserter(others),
                 [](pid_t other) { return other > 0; });
    const int status = status_at_end_of(pid(rank), others);
    pids_[static_cast<std::size_t>(rank)] = 0;
    return status;
  }
  /// All that still run must end with success.
  void finish() {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (pid(rank) == 0) continue;
      const int status = wait(rank);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << rank << " ended with status " << status
          << "; it last said: " << report(rank).text;
    }
  }
  /// Polls until condition() or, to end a hopeless test, until a rank has ended.
  void await(const std::function<bool()>& condition) {
    while (!condition()) {
      for (int rank = 0; rank < ranks_; ++rank) {
        siginfo_t info{};
        if (pid(rank) == 0) continue;
        ::waitid(P_PID, static_cast<id_t>(pid(rank)), &info, WEXITED | WNOHANG | WNOWAIT);
        ASSERT_EQ(0, info.si_pid) << "rank " << rank << " ended early: " << report(rank).text;
      }
      ::usleep(200);
    }
  }
  void await_rounds(std::uint64_t rounds) {
    for (int rank = 0; rank < ranks_; ++rank) {
      await([&] { return report(rank).rounds.load() >= rounds; });
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  [[noreturn]] void run(int rank, hocketConfig_t config, const Body& body) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(alarm_s());
    const int results = results_until_now();
    Process self{rank, ranks_, nullptr, shared_};
    if (rank == 0) {
      EXPECT_HOCKET(hocketGetUniqueId(&shared_->id));
      shared_->has_id.store(1);
    }
    while (shared_->has_id.load() == 0) ::usleep(500);
    const hocketResult_t joined =
        hocketCommInitRankConfig(&self.comm, ranks_, shared_->id, rank, &config);
    self.report().joined_ns = now_ns();
    if (joined == hocketSuccess) {
      body(self);
      EXPECT_HOCKET(hocketCommDestroy(self.comm));
    } else {
      self.keep(joined);
      std::snprintf(self.report().text, sizeof self.report().text, "join: %s",
                    hocketGetLastError(nullptr));
    }
    const bool failed = joined != hocketSuccess || has_failed_since(results);
    std::fflush(nullptr);
    std::exit(failed ? 1 : 0);
  }

  const int ranks_;
  Shared* shared_;
  std::vector<pid_t> pids_;
};

/// Runs body in one child, where it may use threads.
inline void in_a_child(const std::function<void()>& body) {
  tests::await_end_of_threads();
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(alarm_s());
    const int results = results_until_now();
    body();
    std::fflush(nullptr);
    std::exit(has_failed_since(results) ? 1 : 0);
  }
  const int status = status_at_end_of(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "ended with status " << status;
}

/// p50 and maximum of latencies, for people.
inline std::string summary(std::vector<std::int64_t> ns) {
  if (ns.empty()) return "none";
  std::sort(ns.begin(), ns.end());
  char text[100];
  std::snprintf(text, sizeof text, "%zu latencies, p50 %.1f ms, max %.1f ms", ns.size(),
                static_cast<double>(ns[ns.size() / 2]) / 1e6, static_cast<double>(ns.back()) / 1e6);
  return text;
}

}  // namespace faults
