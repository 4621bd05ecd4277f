// Computes the figures of a row from the times of the ranks. It uses neither the library nor a
// clock, so that tests can check all of it.
#pragma once

#include <cstddef>
#include <vector>

#include "options.h"

namespace hocket::perf {

/// A vector per rank, all of the same length.
using ByRank = std::vector<std::vector<double>>;

/// Combines the values of the first `ranks` ranks, position by position.
std::vector<double> average_ranks(const ByRank& by_rank, std::size_t ranks, Average how);

/// Percentiles are by nearest rank: p percent of the values are at most the p-th percentile.
struct Summary {
  double mean = 0;
  double min = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
  double variation_percent = 0;  // standard deviation over mean
};
Summary summarise(std::vector<double> values);

/// The results of --aligned, from starts and ends on the common clock. The time of an iteration is
/// from the last start to the last end; its skew is from the first start to the last start.
struct Aligned {
  std::vector<double> time_us;
  std::vector<double> skew_us;
};
Aligned align(const ByRank& start_us, const ByRank& end_us);

/// Means over iterations and ranks.
struct Overlap {
  double overall_us = 0;  // call, computation and wait
  double compute_us = 0;
  double call_us = 0;
  double wait_us = 0;
  double pure_us = 0;  // call and wait, nothing between
  /// OSU micro-benchmarks 7, util/osu_util_mpi.c, calculate_and_print_stats:
  /// max(0, 100 - 100 x (overall - compute) / pure).
  double percent() const;
};

/// True if result `index` of `total` is among the `wanted` results that are checked: the first, the
/// last, and others evenly between them. If wanted is 1: the last.
bool picked(std::size_t index, std::size_t total, std::size_t wanted);

/// Numbers of buffers through which the calls of an operation rotate, by call number modulo these.
struct Slots {
  std::size_t in = 1;
  std::size_t out = 1;
};
/// The number of slots: `copies`, if that is not 0. Otherwise 64 for at most 4 KiB; for larger
/// sizes so many that they are twice as large as the caches, but at least 1. Out of place there is
/// one input more than outputs, so that the second use of an output gets another result than the
/// first. Never more than the number of operations, and always whole groups.
Slots slots_for(std::size_t bytes, std::size_t stride, std::size_t operations, std::size_t group,
                bool in_place, std::size_t cache_bytes, std::size_t copies = 0);
/// Size of the last-level cache; 32 MiB if the system does not report it.
std::size_t cache_bytes();

}  // namespace hocket::perf
