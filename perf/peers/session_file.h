// A file that all ranks of a benchmark run map, with their barrier, their decisions and their
// times. It does not use the libraries under test, so that the same code starts and times all of
// them. Namespace hosts share the file system, so it works there too.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace hocket::peers {

inline constexpr int max_session_ranks = 64;
inline constexpr int max_session_times = 8192;

struct SessionFile {
  struct alignas(128) Arrival {
    std::atomic<std::uint64_t> epoch;
  };
  Arrival arrivals[max_session_ranks];
  alignas(128) std::atomic<std::uint64_t> operations;  // per batch, decided by rank 0
  std::atomic<std::uint64_t> batches;
  std::uint64_t wrong[max_session_ranks];
  std::uint64_t hash[max_session_ranks];  // of the last batch's results
  double times_us[max_session_ranks][max_session_times];
};

/// Maps path (made by the caller's script, any length). Returns nullptr and sets *error on failure.
SessionFile* map_session(const std::string& path, std::string* error);

class SessionBarrier {
 public:
  /// may_spin: every rank has a core of its own.
  SessionBarrier(SessionFile* file, int rank, int ranks, bool may_spin)
      : file_(file), rank_(rank), ranks_(ranks), may_spin_(may_spin) {}
  /// meanwhile: called repeatedly until all ranks have arrived.
  void wait(void (*meanwhile)() = nullptr);

 private:
  SessionFile* file_;
  int rank_;
  int ranks_;
  bool may_spin_;
  std::uint64_t epoch_ = 0;
};

}  // namespace hocket::peers
