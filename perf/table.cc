#include "table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "data.h"

namespace hocket::perf {
namespace {

/// A number in so many characters, with two decimals if they fit; three for very short times.
std::string number(double value, int width) {
  int decimals = value < 10 && width > 6 ? 3 : 2;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  while (decimals > 0 && static_cast<int>(text.size()) > width) {
    text = fmt::format("{:.{}f}", value, --decimals);
  }
  return text;
}

struct Column {
  const char* name;
  const char* unit;
  int width;
  std::string (*text)(const Options&, const Measured&);
};

std::string wrong_text(const Options& o, const Measured& m) {
  return o.checks > 0 && o.has_data() ? fmt::format("{:g}", static_cast<double>(m.wrong)) : "N/A";
}
std::string each_text(const Measured& m, double Summary::*figure) {
  return m.each ? number((*m.each).*figure, 7) : "N/A";
}

const Column usual_columns[] = {
    {"time", "(us)", 7, [](const Options&, const Measured& m) { return number(m.shown_us, 7); }},
    {"algbw", "(GB/s)", 6,
     [](const Options&, const Measured& m) { return number(m.algbw_GBps, 6); }},
    {"busbw", "(GB/s)", 6,
     [](const Options&, const Measured& m) { return number(m.busbw_GBps, 6); }},
    {"#wrong", "", 6, wrong_text},
};
const Column overlap_columns[] = {
    {"overall", "(us)", 8,
     [](const Options&, const Measured& m) { return number(m.overlap.overall_us, 8); }},
    {"compute", "(us)", 8,
     [](const Options&, const Measured& m) { return number(m.overlap.compute_us, 8); }},
    {"call", "(us)", 8,
     [](const Options&, const Measured& m) { return number(m.overlap.call_us, 8); }},
    {"wait", "(us)", 8,
     [](const Options&, const Measured& m) { return number(m.overlap.wait_us, 8); }},
    {"pure", "(us)", 8,
     [](const Options&, const Measured& m) { return number(m.overlap.pure_us, 8); }},
    {"overlap", "(%)", 7,
     [](const Options&, const Measured& m) { return number(m.overlap.percent(), 6); }},
    {"#wrong", "", 6, wrong_text},
};
const Column skew_column = {"skew", "(us)", 7,
                            [](const Options&, const Measured& m) { return number(m.skew_us, 7); }};
/// nccl-tests' -I.
const Column each_columns[] = {
    {"i_min", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::min); }},
    {"i_max", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::max); }},
    {"i_p99", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::p99); }},
    {"i_cv%", "(%)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::variation_percent); }},
};
const Column verbose_columns[] = {
    {"min", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::min); }},
    {"p50", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::p50); }},
    {"p95", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::p95); }},
    {"p99", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::p99); }},
    {"max", "(us)", 7,
     [](const Options&, const Measured& m) { return each_text(m, &Summary::max); }},
    {"algorithm", "", 10, [](const Options&, const Measured& m) { return m.algorithm; }},
    {"transport", "", 9, [](const Options&, const Measured& m) { return m.transport; }},
};

/// Of each half.
std::vector<Column> columns_of(const Options& o) {
  std::vector<Column> columns;
  const auto append = [&columns](const auto& more) {
    columns.insert(columns.end(), std::begin(more), std::end(more));
  };
  if (o.method == Method::overlap) {
    append(overlap_columns);
  } else {
    append(usual_columns);
  }
  if (o.cpu_time) columns.front().name = "cputime";
  if (o.method == Method::aligned) columns.push_back(skew_column);
  if (o.each_iteration) append(each_columns);
  if (o.verbose) append(verbose_columns);
  return columns;
}

std::string half(const Options& o, const Measured* m) {
  std::string text;
  for (const Column& column : columns_of(o)) {
    text += fmt::format("  {:>{}}", m == nullptr ? "N/A" : column.text(o, *m), column.width);
  }
  return text;
}

std::string what_is_timed(const Options& o) {
  if (o.collective == Collective::latency) return "half a round trip, the rounds back to back";
  const char* calls = o.needs_stream() ? "calls on a host stream" : "calls in the caller's thread";
  switch (o.method) {
    case Method::back_to_back:
      return fmt::format("{} iterations between two clock reads (nccl-tests' method), {}{}",
                         o.iterations, calls,
                         o.blocking == Blocking::wait_and_barrier ? ", a barrier after each" : "");
    case Method::barrier:
      return fmt::format("each iteration alone, a barrier before it (OSU's method), {}", calls);
    case Method::aligned:
      return fmt::format("each iteration from the last start to the last end on one clock, {}",
                         calls);
    case Method::overlap:
      return fmt::format("call, computation and wait (OSU's method), {}", calls);
  }
  return {};
}

/// Rows of nccl-tests have two halves, even where one says nothing; those of --overlap are OSU's.
int halves_of(const Options& o) { return o.method == Method::overlap ? 1 : 2; }

std::string column_heads(const Options& o) {
  const std::vector<Column> columns = columns_of(o);
  const int halves = halves_of(o);
  std::size_t width = 0;
  for (const Column& column : columns) width += static_cast<std::size_t>(column.width) + 2;
  std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "", "", "", "", "");
  for (int i = 0; i < halves; ++i) {
    text += fmt::format("  {:^{}}", i == 0 ? "out-of-place" : "in-place", width - 2);
  }
  text += "\n";
  std::string names = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type",
                                  "redop", "root");
  std::string units =
      fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < halves; ++i) {
    for (const Column& column : columns) {
      names += fmt::format("  {:>{}}", column.name, column.width);
      units += fmt::format("  {:>{}}", column.unit, column.width);
    }
  }
  if (o.timestamps) {
    names += fmt::format("  {:>19}", "timestamp");
    units += "  %Y-%m-%d %H:%M:%S";
  }
  return text + names + "\n" + units + "\n";
}

}  // namespace

void Totals::add(const Measured& half) {
  wrong += half.wrong;
  busbw += half.busbw_GBps;
  ++halves;
}

bool Totals::fast_enough(const Options& o) const {
  return !o.min_bus_bandwidth || average_busbw() >= 0.9 * *o.min_bus_bandwidth;
}

std::string header(const Options& o, const std::vector<Place>& places, int nodes) {
  const std::vector<std::size_t> sizes = o.sizes();
  std::string text = fmt::format(
      "# hocket-perf version {}.{}.{}\n# Collective test starting: {}\n"
      "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: {} validation: {} graph: 0 unalign: {}\n",
      HOCKET_MAJOR, HOCKET_MINOR, HOCKET_PATCH, o.program(), o.has_data() ? o.min_bytes : 0,
      o.has_data() ? o.max_bytes : 0,
      o.step_factor > 1 ? static_cast<std::size_t>(o.step_factor) : o.step_bytes,
      o.step_factor > 1 ? "factor" : "bytes", o.warmup_iterations, o.iterations, o.aggregated,
      o.checks, o.unaligned);
  text += fmt::format("# Method: {}: {}\n", name_of(o.method), what_is_timed(o));
  text +=
      fmt::format("# {} ranks on {} nodes, memory: {}, buffers: {}, seed: {}\n#\n# Using devices\n",
                  places.size(), nodes, o.alloc_memory ? "alloc" : "plain",
                  o.buffers == 0 ? "rotated" : std::to_string(o.buffers), o.seed);
  for (std::size_t r = 0; r < places.size(); ++r) {
    text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [cpu] CPU memory\n",
                        r, places[r].pid, places[r].host, places[r].local_rank);
  }
  return text + "#\n" + column_heads(o);
}

std::string row_line(const Options& o, const Row& row, const std::string& timestamp) {
  const Measured& out = row.out_of_place;
  std::string text =
      fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}{}", out.bytes, out.count,
                  o.dtype_name(out.dtype), o.redop_name(out.op), out.root, half(o, &out));
  if (halves_of(o) == 2) text += half(o, row.in_place ? &*row.in_place : nullptr);
  if (o.timestamps) text += fmt::format("{:>21}", timestamp);
  return text + "\n";
}

std::string footer(const Options& o, const Totals& totals) {
  std::string speed;
  if (o.min_bus_bandwidth) speed = totals.fast_enough(o) ? " OK" : " FAILED";
  return fmt::format(
      "# Out of bounds values : {} {}{}\n# Avg bus bandwidth    : {:g}{}\n#\n"
      "# Collective test concluded: {}\n#\n",
      totals.wrong, totals.wrong == 0 ? "OK" : "FAILED",
      o.checks == 0 ? " (nothing was checked)" : "", totals.average_busbw(), speed, o.program());
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

ProgressLine::ProgressLine(bool enabled) : enabled_(enabled && ::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(const std::string& text) {
  if (!enabled_) return;
  const double now_s = now_us() / 1e6;
  if (now_s - last_s_ < 0.1) return;
  last_s_ = now_s;
  shown_ = true;
  std::fprintf(stderr, "\r\033[K# %s", text.c_str());
  std::fflush(stderr);
}

void ProgressLine::clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace hocket::perf
