// Runs one row of the table: fills buffers, times the operation, checks every rank's results.
//
// An iteration is one timed stretch. Above 4 KiB it is one operation (or one group of -m); at or
// below, a batch of 64, each on buffers of its own, so that the timer is not what is measured.
// Between iterations, outside the timed stretch, every rank reads all of its results (a hash that
// the ranks compare after the loop, and on some iterations the check against the reference),
// rewrites all of its inputs with new random data, and waits at a barrier.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "options.h"

namespace hocket::perf {

/// One row, one of its two halves. Sizes and names as nccl-tests counts them.
struct Measured {
  std::size_t bytes = 0;  // the larger of the input and the output
  std::size_t count = 0;  // the call's count parameter
  hocketDataType_t dtype = hocketFloat32;
  hocketRedOp_t op = hocketSum;
  int root = -1;
  bool in_place = false;
  double time_us = 0;  // of one operation; mean over iterations
  double p50_us = 0;   // over iterations
  double p99_us = 0;
  double algbw_GBps = 0;
  double busbw_GBps = 0;
  std::uint64_t wrong = 0;  // elements on all ranks, and buffers that differ between ranks
  std::string remark;       // which ranks disagreed, and when
  std::string algorithm;
  std::string transport;
};

/// An operation of the library failed: the sentence says which and why.
struct Failure {
  std::string sentence;
};

class Runner {
 public:
  using Progress = std::function<void(int iteration, int of)>;

  Runner(const Options& options, hocketComm_t comm, Progress progress);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// Buffers for the largest size and the stream. False: *failure says why.
  bool prepare(Failure* failure);

  /// bytes: the wanted size; the row's is what fits the type and the number of ranks.
  bool measure(std::size_t bytes, hocketDataType_t dtype, hocketRedOp_t op, int root, bool in_place,
               Measured* row, Failure* failure);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

 private:
  struct Shape {
    Expectation expectation;
    bool in_place = false;
    int operations = 1;      // per iteration
    std::size_t stride = 0;  // bytes from one slot to the next
  };

  bool ok(hocketResult_t result, const char* call, Failure* failure);
  Shape shape_for(std::size_t bytes, hocketDataType_t dtype, hocketRedOp_t op, int root,
                  bool in_place) const;
  char* input(const Shape& shape, int slot) const;
  char* output(const Shape& shape, int slot) const;
  bool post(const Shape& shape, int slot, Failure* failure);
  bool iterate(const Shape& shape, double* time_us, Failure* failure);
  bool should_check(const Shape& shape, int iteration) const;
  bool compare_ranks(const Shape& shape, std::vector<double>* times_us,
                     const std::vector<std::uint64_t>& hashes, Measured* row, Failure* failure);
  void summarise(const Shape& shape, std::vector<double> times_us, Measured* row) const;

  const Options& options_;
  hocketComm_t comm_;
  Progress progress_;
  int rank_ = 0;
  int ranks_ = 1;
  hocketStream_t stream_ = nullptr;
  char* send_ = nullptr;
  char* recv_ = nullptr;
  std::uint64_t row_number_ = 0;
};

}  // namespace hocket::perf
