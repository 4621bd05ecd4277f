// Ranks as threads of this process, each with a hocket::Communicator.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <hocket/hocket.hpp>
#include <string>
#include <thread>
#include <vector>

namespace job {

/// With these deadlines, a test that hangs ends with an error that names the missing rank.
inline hocket::Config patient() {
  using std::chrono::seconds;
  return {.deadline = seconds(60), .join_deadline = seconds(120), .silence = seconds(60)};
}

/// Runs body in a thread for each rank number. What it throws is a failure.
inline void run_threads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const hocket::Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The same with a communicator of all ranks.
inline void run(int ranks, const std::function<void(hocket::Communicator&)>& body,
                const hocket::Config& config = patient()) {
  const hocket::UniqueId id = hocket::UniqueId::create();
  run_threads(ranks, [&](int rank) {
    hocket::Communicator comm = hocket::Communicator::join(ranks, id, rank, config);
    body(comm);
  });
}

/// The Expected that body throws. Other errors, and none, are failures.
template <typename Expected, typename Body>
Expected thrown_by(Body body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Expected& error) {
    return error;
  } catch (const hocket::Error& error) {
    ADD_FAILURE() << "another error: " << error.code() << " " << error.what();
  }
  return Expected("nothing", "");
}

inline bool has(const hocket::Error& error, const std::string& words) {
  return std::string(error.what()).find(words) != std::string::npos;
}

}  // namespace job
