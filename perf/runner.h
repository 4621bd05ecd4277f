// Measures a half of a row of the table: generates the data, times the calls by the chosen method,
// and checks the results of every rank. docs/BENCHMARKS.md defines the methods.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common_clock.h"
#include "operation.h"

namespace hocket::perf {

/// A half of a row. Sizes and names are as in nccl-tests.
struct Measured {
  std::size_t bytes = 0;  // the larger of the input and the output
  std::size_t count = 0;  // the call's count parameter
  hocketDataType_t dtype = hocketFloat32;
  hocketRedOp_t op = hocketSum;
  int root = -1;
  bool in_place = false;
  int group = 1;        // operations or messages per iteration
  double time_us = 0;   // of one operation
  double shown_us = 0;  // in the time column: time_us, or the time in the calls alone (-C 1)
  double algbw_GBps = 0;
  double busbw_GBps = 0;
  std::optional<Summary> each;  // of one operation, over the iterations
  double skew_us = 0;           // --aligned: from the first start to the last, mean
  double uncertainty_us = 0;    // --aligned: error of time and skew, because clocks differ
  Overlap overlap;
  std::uint64_t wrong = 0;  // elements on all ranks, and results that differ between ranks
  std::vector<std::string> remarks;
  std::string algorithm;
  std::string transport;
};

struct RowSpec {
  std::size_t bytes = 0;  // as asked for; the row's size fits the type and the ranks
  hocketDataType_t dtype = hocketFloat32;
  hocketRedOp_t op = hocketSum;
  int root = 0;
  bool in_place = false;
};

/// Of --explain.
inline constexpr std::size_t most_calls_of_turn = 64;

class Runner {
 public:
  using Progress = std::function<void(int iteration, int of)>;

  Runner(const Options& options, hocketComm_t comm, Progress progress);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// Makes buffers for the largest size, the stream and the clocks. Otherwise sets *failure.
  bool prepare(Failure* failure);
  bool measure(const RowSpec& spec, Measured* row, Failure* failure);
  /// The operation of a row, in these buffers, on any communicator of the same ranks.
  Operation operation_for(const RowSpec& spec, hocketComm_t comm, hocketRedOp_t redop);

 private:
  /// What a rank measured of a row. The vectors of all ranks have the same lengths.
  struct Seen {
    std::vector<double> first;  // see each method
    std::vector<double> second;
    std::vector<std::uint64_t> hashes;
    std::uint64_t wrong = 0;
  };
  /// Times iteration `i`, which begins with call `first`, and stores the times.
  using Timed = std::function<bool(std::size_t i, std::size_t first, Failure* failure)>;

  bool fits_the_ranks(Failure* failure) const;
  bool allocate(Failure* failure);
  Slots slots_of(std::size_t bytes, bool in_place) const;

  bool back_to_back(Operation* operation, Seen* seen, Measured* row, Failure* failure);
  bool timed_loop(Operation* operation, Seen* seen, Failure* failure);
  bool check_left(Operation* operation, std::size_t total, Seen* seen, Failure* failure);
  bool check_repeated(Operation* operation, Seen* seen, Failure* failure);
  bool in_rounds(Operation* operation, const Timed& timed, Seen* seen, Measured* row,
                 Failure* failure);
  bool one_by_one(Operation* operation, Seen* seen, Measured* row, Failure* failure);
  bool overlapped(Operation* operation, Seen* seen, Measured* row, Failure* failure);

  std::size_t checks_wanted(const Operation& operation) const;
  void check(const Operation& operation, std::size_t k, bool against_reference, Seen* seen) const;
  bool learn_algorithm(Measured* row, Failure* failure);
  bool exchange(const Operation& operation, Seen* seen, ByRank* first, ByRank* second,
                Measured* row, Failure* failure);
  void conclude(const Operation& operation, const ByRank& first, const ByRank& second,
                Measured* row) const;
  void conclude_each(const Operation& operation, std::vector<double> times_us, Measured* row) const;

  const Options& options_;
  Ground ground_;
  Progress progress_;
  int rank_ = 0;
  int ranks_ = 1;
  int nodes_ = 1;
  std::size_t cache_bytes_;
  CommonClock clock_;
  std::vector<void*> registrations_;
  std::vector<hocketEvent_t> events_;
  std::uint64_t row_number_ = 0;
};

}  // namespace hocket::perf
