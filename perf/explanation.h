// What hocket-perf --explain tells: the predicted and the measured time of every algorithm that can
// run a call, and how good choice and predictions were. It uses neither the library nor a clock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "options.h"

namespace hocket::perf {

struct Candidate {
  std::string algorithm;
  std::string transport;
  double predicted_us = 0;
  double measured_us = 0;
  bool chosen = false;

  /// Of the prediction, in percent of the measured time; below 0: predicted too fast.
  double error_percent() const { return 100 * (predicted_us - measured_us) / measured_us; }
};

/// A row: all algorithms at one size, of which one is chosen.
struct Point {
  std::size_t bytes = 0;  // the larger of the input and the output
  std::size_t count = 0;  // the call's count parameter
  hocketDataType_t dtype = hocketFloat32;
  hocketRedOp_t op = hocketSum;
  std::vector<Candidate> candidates;

  double best_us() const;  // the least measured time of the candidates
  const Candidate& chosen() const;
  double ratio(const Candidate& candidate) const { return candidate.measured_us / best_us(); }
};

struct Verdict {
  std::size_t points = 0;
  std::size_t near_best = 0;  // points whose chosen algorithm takes at most 1.1 times the best time
  std::size_t predictions = 0;
  double median_error_percent = 0;  // of all predictions, whatever their signs
  double most_error_percent = 0;
  std::string most_wrong;  // "ring at 64 bytes"
};
Verdict judge(const std::vector<Point>& points);

std::string explain_header(const Options& options, int ranks, int nodes);
std::string explain_lines(const Options& options, const Point& point);
std::string explain_footer(const Verdict& verdict);
/// --json: an array with an object for each algorithm and size.
std::string explain_json(const Options& options, const std::vector<Point>& points, int ranks,
                         int nodes);

}  // namespace hocket::perf
