#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <hocket/training/report.hpp>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace hocket::training {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::optimizer:
      return "optimizer";
    default:
      return "other";
  }
}

double& time_of(StepReport& report, Phase phase) {
  switch (phase) {
    case Phase::forward:
      return report.forward_s;
    case Phase::backward:
      return report.backward_s;
    case Phase::optimizer:
      return report.optimizer_s;
    default:
      return report.other_s;
  }
}

/// The union of intervals, in order.
template <typename Interval>
std::vector<Interval> united(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin_s);
  std::vector<Interval> all;
  for (const Interval& each : intervals) {
    if (!all.empty() && each.begin_s <= all.back().end_s) {
      all.back().end_s = std::max(all.back().end_s, each.end_s);
    } else {
      all.push_back(each);
    }
  }
  return all;
}

template <typename Interval>
double length(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const Interval& each : intervals) sum += each.end_s - each.begin_s;
  return sum;
}

/// How long both unions run at once.
template <typename Interval>
double common_length(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (const Interval& x : a) {
    for (const Interval& y : b) {
      sum += std::max(0.0, std::min(x.end_s, y.end_s) - std::max(x.begin_s, y.begin_s));
    }
  }
  return sum;
}

/// The number of kB that follows the label in a file of /proc; 0: there is none.
std::size_t bytes_after(const std::string& text, const char* label) {
  const std::size_t found = text.find(label);
  if (found == std::string::npos) return 0;
  return std::strtoull(text.c_str() + found + std::char_traits<char>::length(label), nullptr, 10) *
         1024;
}

std::string read_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string text_line(const StepReport& report) {
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  std::string text = fmt::format(
      "forward {:.1f} ms, backward {:.1f}, exposed {:.1f}, optimizer {:.1f}, other {:.1f}",
      ms(report.forward_s), ms(report.backward_s), ms(report.exposed_s), ms(report.optimizer_s),
      ms(report.other_s));
  if (report.communication_s > 0) {
    text += fmt::format("; {:.0f} % of {:.1f} ms of communication hidden", 100 * report.overlap,
                        ms(report.communication_s));
  }
  return text + fmt::format("; peak {} MiB", report.peak_resident_bytes >> 20);
}

std::string json_line(const StepReport& report, const std::map<std::string, double>& values) {
  Json json = {{"step", report.step},
               {"total_s", report.total_s},
               {"forward_s", report.forward_s},
               {"backward_s", report.backward_s},
               {"exposed_s", report.exposed_s},
               {"optimizer_s", report.optimizer_s},
               {"other_s", report.other_s},
               {"communication_s", report.communication_s},
               {"overlap", report.overlap},
               {"bytes", report.bytes},
               {"peak_resident_bytes", report.peak_resident_bytes},
               {"proportional_bytes", report.proportional_bytes}};
  for (const auto& [name, value] : values) {
    json[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ProcessMemory process_memory(bool with_proportional) {
  const std::string status = read_file("/proc/self/status");
  ProcessMemory memory;
  memory.resident = bytes_after(status, "\nVmRSS:");
  memory.peak_resident = bytes_after(status, "\nVmHWM:");
  if (with_proportional) {
    memory.proportional = bytes_after(read_file("/proc/self/smaps_rollup"), "\nPss:");
  }
  return memory;
}

void StepRecorder::begin(std::int64_t step) {
  report_ = {};
  report_.step = step;
  communication_.clear();
  waits_.clear();
  phase_ = Phase::other;
  waited_in_phase_s_ = 0;
  begin_s_ = phase_begin_s_ = now_s();
}

void StepRecorder::leave_phase(double at_s) {
  time_of(report_, phase_) += at_s - phase_begin_s_ - waited_in_phase_s_;
  if (options_.trace != nullptr && phase_ != Phase::other) {
    options_.trace->add(name_of(phase_), "step", phase_begin_s_, at_s,
                        {{"step", static_cast<double>(report_.step)}});
  }
  waited_in_phase_s_ = 0;
  phase_begin_s_ = at_s;
}

void StepRecorder::enter(Phase phase) {
  leave_phase(now_s());
  phase_ = phase;
}

void StepRecorder::add(const CommunicationTimings& timings) {
  for (const BucketTiming& bucket : timings.buckets) {
    communication_.push_back({bucket.begin_s, bucket.end_s});
    report_.bytes += bucket.bytes;
    if (options_.trace == nullptr) continue;
    // Buckets are queued one after another: each has a row, in turn, so that they may overlap.
    options_.trace->add(fmt::format("{} {}", timings.what, bucket.bucket),
                        fmt::format("buckets {}", bucket.bucket % 4), bucket.begin_s, bucket.end_s,
                        {{"bytes", static_cast<double>(bucket.bytes)}});
  }
  // A wait that began before this phase is not one of this phase.
  const double begin_s = std::max(timings.wait_begin_s, phase_begin_s_);
  if (timings.wait_end_s <= begin_s) return;
  waits_.push_back({begin_s, timings.wait_end_s});
  waited_in_phase_s_ += timings.wait_end_s - begin_s;
  report_.exposed_s += timings.wait_end_s - begin_s;
  if (options_.trace != nullptr) {
    options_.trace->add("wait for communication", "step", begin_s, timings.wait_end_s);
  }
}

StepReport StepRecorder::end() {
  const double end_s = now_s();
  leave_phase(end_s);
  report_.total_s = end_s - begin_s_;
  const std::vector<Interval> communicated = united(communication_);
  report_.communication_s = length(communicated);
  if (report_.communication_s > 0) {
    report_.overlap = 1 - common_length(communicated, united(waits_)) / report_.communication_s;
  }
  const ProcessMemory memory = process_memory(options_.proportional_memory);
  report_.peak_resident_bytes = memory.peak_resident;
  report_.proportional_bytes = memory.proportional;
  return report_;
}

}  // namespace hocket::training
