// Jobs for the tests of the public API: ranks as threads of this process, so that a sanitizer sees
// the whole job.
//
// With LONG_TESTS=1 the long tests run too.
#pragma once

#include <gtest/gtest.h>
#include <hocket/hocket.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sanitized.h"

namespace ranks {

using tests::sanitized;

inline bool long_tests() { return std::getenv("LONG_TESTS") != nullptr; }
/// How often a test repeats: `all` times with LONG_TESTS, else `some` times; a fifth of them in a
/// slow build, in which joins and splits take ten to fifty times as long.
inline int repetitions(int all, int some) {
  return long_tests() ? all : sanitized ? std::max(1, some / 5) : some;
}

/// Environment variables for as long as it lives. Make it before the ranks are started.
class Env {
 public:
  using List = std::vector<std::pair<std::string, std::string>>;
  explicit Env(const List& variables) {
    for (const auto& [name, value] : variables) {
      const char* const old = std::getenv(name.c_str());
      before_.push_back({name, old == nullptr ? "" : old});
      if (value.empty()) {
        ::unsetenv(name.c_str());
      } else {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
    }
  }
  ~Env() {
    for (const auto& [name, value] : before_) {
      if (value.empty()) {
        ::unsetenv(name.c_str());
      } else {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
    }
  }
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

 private:
  List before_;
};

#define EXPECT_HOCKET(call) EXPECT_EQ(hocketSuccess, (call)) << hocketGetLastError(nullptr)
#define ASSERT_HOCKET(call) ASSERT_EQ(hocketSuccess, (call)) << hocketGetLastError(nullptr)

/// With these deadlines, a test that hangs ends with an error that names the missing rank.
inline hocketConfig_t patient_config() {
  hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
  config.deadline_ms = 60'000;
  config.join_deadline_ms = 120'000;
  config.silence_ms = 60'000;
  return config;
}

/// Asks for comm's state as long as it is `passing`.
inline hocketResult_t state_after(hocketResult_t passing, hocketComm_t comm) {
  hocketResult_t state = passing;
  while (state == passing) {
    EXPECT_HOCKET(hocketCommGetAsyncError(comm, &state));
    std::this_thread::yield();
  }
  return state;
}
/// Until an error on the communicator is known here.
inline hocketResult_t hear(hocketComm_t comm) { return state_after(hocketSuccess, comm); }
/// Waits until the operations of a communicator with blocking = 0 have ended.
inline hocketResult_t settle(hocketComm_t comm) { return state_after(hocketInProgress, comm); }

/// The result of an all-reduce of ones: the number of ranks. Every rank of the communicator calls
/// it.
inline int sum_of_ones(hocketComm_t comm) {
  int x = 1;
  EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, comm, nullptr));
  return x;
}

struct Rank {
  int rank = 0;
  int ranks = 1;
  hocketComm_t comm = nullptr;
  /// Waits for the other ranks, beside the library.
  std::function<void()> meet;
};

using Body = std::function<void(Rank&)>;

/// Runs body in a thread for each rank, joined to one communicator, which it destroys afterwards
/// (or body has set comm to null).
inline void run_ranks(int n, const Body& body, hocketConfig_t config = patient_config()) {
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  std::barrier<> all(n);
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      Rank self{i, n, nullptr, [&all] { all.arrive_and_wait(); }};
      hocketConfig_t own = config;
      const hocketResult_t joined = hocketCommInitRankConfig(&self.comm, n, id, i, &own);
      EXPECT_EQ(hocketSuccess, joined) << "rank " << i << ": " << hocketGetLastError(nullptr);
      if (joined != hocketSuccess) {
        all.arrive_and_drop();
        return;
      }
      body(self);
      all.arrive_and_drop();
      EXPECT_HOCKET(hocketCommDestroy(self.comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ranks
