// Prints the table and the JSON of nccl-tests, and the JSON of --json. Only rank 0 uses them.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "options.h"
#include "runner.h"

namespace hocket::perf {

/// The line of a rank in the header.
struct Place {
  int pid = 0;
  int local_rank = 0;
  char host[64] = {};
};

/// The summary of the whole table, kept as sums because -N 0 makes rows without end.
struct Totals {
  std::uint64_t wrong = 0;
  double busbw = 0;
  std::size_t halves = 0;

  void add(const Measured& half);
  double average_busbw() const { return halves == 0 ? 0 : busbw / static_cast<double>(halves); }
  /// True if the mean is at least 90 % of NCCL_TESTS_MIN_BW, as in nccl-tests.
  bool fast_enough(const Options& options) const;
};

/// The halves of a row; some operations have no in-place half.
struct Row {
  Measured out_of_place;
  std::optional<Measured> in_place;
};

std::string header(const Options& options, const std::vector<Place>& places, int nodes);

/// "size count type redop root"; then each half; a missing half is N/A.
std::string row_line(const Options& options, const Row& row, const std::string& timestamp);

/// Prints the number of wrong results, the mean of all bus bandwidths, and the name of the program.
std::string footer(const Options& options, const Totals& totals);

/// --json: an array with an object per half of a row.
std::string to_json(const Options& options, const std::vector<Row>& rows, int ranks, int nodes);

/// The data of -J other than the rows.
struct RunRecord {
  std::vector<std::string> arguments;
  std::string start_time, end_time;
  std::vector<Place> places;
};
/// -J: nccl-tests' JSON object, version 1.
std::string to_nccl_json(const Options& options, const std::vector<Row>& rows,
                         const RunRecord& record);

/// "2026-11-21 20:40:26", as nccl-tests prints it.
std::string time_of_day();

/// Prints a progress line that overwrites itself, if standard error is a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled);
  void show(const std::string& text);
  void clear();

 private:
  bool enabled_;
  double last_s_ = 0;
  bool shown_ = false;
};

}  // namespace hocket::perf
