#include "explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data.h"
#include "stats.h"

namespace hocket::perf {
namespace {

constexpr double near_best = 1.1;

}  // namespace

double Point::best_us() const {
  return std::ranges::min_element(candidates, {}, &Candidate::measured_us)->measured_us;
}

const Candidate& Point::chosen() const {
  return *std::ranges::find_if(candidates, &Candidate::chosen);
}

Verdict judge(const std::vector<Point>& points) {
  Verdict verdict;
  verdict.points = points.size();
  std::vector<double> errors;
  for (const Point& point : points) {
    if (point.ratio(point.chosen()) <= near_best) ++verdict.near_best;
    for (const Candidate& candidate : point.candidates) {
      errors.push_back(std::abs(candidate.error_percent()));
      if (errors.back() <= verdict.most_error_percent) continue;
      verdict.most_error_percent = errors.back();
      verdict.most_wrong = fmt::format("{} at {} bytes", candidate.algorithm, point.bytes);
    }
  }
  verdict.predictions = errors.size();
  if (!errors.empty()) verdict.median_error_percent = summarise(errors).p50;
  return verdict;
}

std::string explain_header(const Options& o, int ranks, int nodes) {
  return fmt::format(
             "# hocket-perf version {}.{}.{}\n# Explained: {}, {} ranks on {} nodes, memory: {}, "
             "buffers: {}\n",
             HOCKET_MAJOR, HOCKET_MINOR, HOCKET_PATCH, o.name(), ranks, nodes,
             o.alloc_memory ? "alloc" : "plain",
             o.buffers == 0 ? "rotated" : std::to_string(o.buffers)) +
         fmt::format(
             "# Each algorithm in turn, at most {} times or {} s for a size; medians over the "
             "turns of the slowest rank's mean over the calls of a turn. Results are not checked.\n"
             "# *: chosen by price; ratio: to the fastest\n#\n",
             o.iterations, o.explain_seconds) +
         fmt::format(
             "# {:>10}  {:>12}  {:>8}  {:>6}    {:<18}  {:>9}  {:>11}  {:>11}  {:>7}  {:>6}\n",
             "size", "count", "type", "redop", "algorithm", "transport", "predicted", "measured",
             "error", "ratio") +
         fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}    {:<18}  {:>9}  {:>11}  {:>11}  {:>7}\n",
                     "(B)", "(elements)", "", "", "", "", "(us)", "(us)", "(%)");
}

std::string explain_lines(const Options& o, const Point& point) {
  std::string text;
  for (const Candidate& candidate : point.candidates) {
    text += fmt::format(
        "{:12}  {:12}  {:>8}  {:>6}  {} {:<18}  {:>9}  {:11.2f}  {:11.2f}  {:+7.0f}  {:6.2f}\n",
        point.bytes, point.count, o.dtype_name(point.dtype), o.redop_name(point.op),
        candidate.chosen ? '*' : ' ', candidate.algorithm, candidate.transport,
        candidate.predicted_us, candidate.measured_us, candidate.error_percent(),
        point.ratio(candidate));
  }
  return text;
}

std::string explain_footer(const Verdict& v) {
  return fmt::format(
      "# The chosen algorithm is within 10 % of the fastest at {} of {} points ({:.0f} %).\n"
      "# Error of {} predictions: median {:.0f} %, at most {:.0f} % ({}).\n",
      v.near_best, v.points, v.points == 0 ? 0.0 : 100.0 * v.near_best / v.points, v.predictions,
      v.median_error_percent, v.most_error_percent, v.most_wrong);
}

std::string explain_json(const Options& o, const std::vector<Point>& points, int ranks, int nodes) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Point& point : points) {
    for (const Candidate& candidate : point.candidates) {
      all.push_back({{"collective", o.name()},
                     {"bytes", point.bytes},
                     {"count", point.count},
                     {"dtype", o.dtype_name(point.dtype)},
                     {"redop", o.redop_name(point.op)},
                     {"ranks", ranks},
                     {"nodes", nodes},
                     {"memory", o.alloc_memory ? "alloc" : "plain"},
                     {"algorithm", candidate.algorithm},
                     {"transport", candidate.transport},
                     {"chosen", candidate.chosen},
                     {"predicted_us", candidate.predicted_us},
                     {"measured_us", candidate.measured_us},
                     {"error_percent", candidate.error_percent()},
                     {"ratio", point.ratio(candidate)}});
    }
  }
  return all.dump(1) + "\n";
}

}  // namespace hocket::perf
