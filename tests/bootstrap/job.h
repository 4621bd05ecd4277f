// Jobs for the tests: ranks as threads of this process, or as forked processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/auth/auth.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/monitor_thread.h"
#include "bootstrap/net/socket.h"
#include "bootstrap/session.h"
#include "threads.h"

namespace hocket::internal {

/// A job on this host: key, id and a listener for its coordinator. start() starts the
/// coordinator, so that processes can be forked before any thread runs.
struct Job {
  JoinOptions options;
  UniqueFd listener;

  explicit Job(int ranks, bool share_memory = true, bool v6 = false) {
    EXPECT_TRUE(random_bytes(options.key.data(), options.key.size()).ok());
    EXPECT_TRUE(random_bytes(options.job_id.data(), options.job_id.size()).ok());
    options.ranks = ranks;
    options.share_memory = share_memory;
    options.join_deadline_ms = 120'000;
    options.silence_ms = 60'000;
    options.coordinator = loopback(v6);
    const Status status = listen_tcp(&options.coordinator, &listener);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void start() {
    const Status status = start_coordinator(options.key, options.job_id, "", std::move(listener),
                                            &options.coordinator, options.join_deadline_ms);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  JoinOptions of(int rank) const {
    JoinOptions out = options;
    out.rank = rank;
    return out;
  }
};

/// Of a communicator of ranks 0 to 2.
inline FaultScope scope_of(std::uint64_t comm_id) {
  FaultScope scope;
  scope.comm_id = comm_id;
  scope.members = {0, 1, 2};
  return scope;
}

inline Nanos in_ms(std::int64_t ms) { return monotonic_now() + ms * nanos_per_ms; }

/// Runs body(rank) in a thread per rank and waits for all.
inline void in_threads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

/// Joins all ranks as threads.
inline std::vector<std::shared_ptr<Session>> join_all(const Job& job) {
  std::vector<std::shared_ptr<Session>> out(static_cast<std::size_t>(job.options.ranks));
  in_threads(job.options.ranks, [&](int rank) {
    const Status status = Session::join(job.of(rank), &out[rank]);
    EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.message();
  });
  return out;
}

inline constexpr int any_rank = -1;

/// Blocks until a fault of that kind and rank is known, or until the deadline.
inline bool wait_fault(Session& session, Fault::Kind kind, int rank, Fault* out = nullptr,
                       std::int64_t limit_ms = 60'000) {
  std::mutex mutex;
  std::condition_variable woken;
  const int token = session.watch([&] {
    std::lock_guard lock(mutex);
    woken.notify_all();
  });
  const auto found = [&] {
    for (const Fault& fault : session.faults()) {
      if (fault.kind != kind || (rank != any_rank && fault.rank != rank)) continue;
      if (out != nullptr) *out = fault;
      return true;
    }
    return false;
  };
  bool ok;
  {
    std::unique_lock lock(mutex);
    // The look from time to time is only for a wake-up between found() and the wait.
    const Nanos deadline = in_ms(limit_ms);
    while (!(ok = found()) && monotonic_now() < deadline) {
      woken.wait_for(lock, std::chrono::milliseconds(20));
    }
  }
  session.unwatch(token);
  return ok;
}

/// Ranks as processes, forked before this one has threads.
class Processes {
 public:
  enum class Parent { single, has_threads };
  explicit Processes(Parent parent = Parent::single) {
    if (parent == Parent::single) tests::await_end_of_threads();
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  /// body's result is the exit status.
  void start(const std::function<int()>& body) {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int status = body();
      std::fflush(nullptr);
      ::_exit(::testing::Test::HasFailure() ? 99 : status);
    }
    pids_.push_back(pid);
  }
  pid_t pid(int index) const { return pids_[index]; }
  void signal(int index, int number) { ::kill(pids_[index], number); }
  /// Exit status, or 1000 + signal.
  int wait(int index) {
    int status = 0;
    ::waitpid(pids_[index], &status, 0);
    pids_[index] = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  std::vector<pid_t> pids_;
};

/// A few numbers that forked processes share with their parent.
class SharedNumbers {
 public:
  SharedNumbers()
      : page_(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedNumbers() { ::munmap(page_, 4096); }
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;
  std::atomic<std::int64_t>& operator[](int i) const {
    return static_cast<std::atomic<std::int64_t>*>(page_)[i];
  }
  /// Waits until number i is at least value; false after a minute.
  bool reaches(int i, std::int64_t value) const {
    const Nanos deadline = in_ms(60'000);
    while ((*this)[i].load() < value) {
      if (monotonic_now() > deadline) return false;
      ::usleep(500);
    }
    return true;
  }

 private:
  void* page_;
};

}  // namespace hocket::internal
