// A file that all ranks of one benchmark run map: their barrier, their decisions and their times.
// It belongs to the benchmark, not to the libraries under test, so that all of them are started and
// timed by the very same code. Namespace hosts share the file system, so it serves there too.
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

/// Maps path (made by the caller's script, any length); nullptr: *error says why.
SessionFile* map_session(const std::string& path, std::string* error);

class SessionBarrier {
 public:
  /// may_spin: every rank has a core of its own.
  SessionBarrier(SessionFile* file, int rank, int ranks, bool may_spin)
      : file_(file), rank_(rank), ranks_(ranks), may_spin_(may_spin) {}
  /// meanwhile: called again and again until all have arrived.
  void wait(void (*meanwhile)() = nullptr);

 private:
  SessionFile* file_;
  int rank_;
  int ranks_;
  bool may_spin_;
  std::uint64_t epoch_ = 0;
};

}  // namespace hocket::peers
