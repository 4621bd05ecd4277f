// From the ranks' times to the figures of a row. No library, no clock: the tests reach all of it.
#pragma once

#include <cstddef>
#include <vector>

#include "options.h"

namespace hocket::perf {

/// One vector per rank, all of one length.
using ByRank = std::vector<std::vector<double>>;

/// Over the first `ranks` ranks, value by value.
std::vector<double> average_ranks(const ByRank& by_rank, std::size_t ranks, Average how);

/// Percentiles are nearest-rank: the least value that so many percent do not exceed.
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

/// What --aligned makes of starts and ends on one clock: an iteration's time is from the last
/// start to the last end, its skew from the first start to the last.
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

/// Is result `index` of `total` among the `wanted` that are held against the reference: the first,
/// the last, and others evenly between? With one wanted: the last.
bool picked(std::size_t index, std::size_t total, std::size_t wanted);

/// Buffers that an operation's calls rotate through, by call number modulo these counts.
struct Slots {
  std::size_t in = 1;
  std::size_t out = 1;
};
/// As many as `copies`. Where that is 0: at or below 4 KiB 64; above, so many that they are twice
/// as large as the caches, at least one; and out of place one input more than there are outputs, so
/// that the second use of an output gets another result than the first. Never more than there are
/// operations, always whole groups.
Slots slots_for(std::size_t bytes, std::size_t stride, std::size_t operations, std::size_t group,
                bool in_place, std::size_t cache_bytes, std::size_t copies = 0);
/// The last-level cache that this processor's cores share; 32 MiB where the system does not say.
std::size_t cache_bytes();

}  // namespace hocket::perf
