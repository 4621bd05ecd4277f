// nccl-tests' table and our JSON. Only rank 0 uses them.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "options.h"
#include "runner.h"

namespace hocket::perf {

/// One rank's line of the header.
struct Place {
  int pid = 0;
  int local_rank = 0;
  char host[64] = {};
};

std::string header(const Options& options, const std::vector<Place>& places, int nodes);

/// "size count type redop root"; then each half; a null half prints N/A.
std::string row_line(const Options& options, const Measured& out_of_place,
                     const Measured* in_place);

/// Rows that were wrong and the mean of all bus bandwidths.
std::string footer(const Options& options, const std::vector<Measured>& rows);

std::string to_json(const Options& options, const std::vector<Measured>& rows, int ranks,
                    int nodes);

/// A line on stderr that overwrites itself, where stderr is a terminal.
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
