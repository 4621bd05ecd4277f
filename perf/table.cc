#include "table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "data.h"

namespace hocket::perf {
namespace {

/// Seven characters with two decimals where they fit, three for times a timer barely sees.
std::string number(double value, int width) {
  int decimals = value < 10 && width > 6 ? 3 : 2;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  while (decimals > 0 && static_cast<int>(text.size()) > width) {
    text = fmt::format("{:.{}f}", value, --decimals);
  }
  return fmt::format("{:>{}}", text, width);
}

std::string half(const Options& options, const Measured* m) {
  if (m == nullptr) return fmt::format("  {:>7}  {:>6}  {:>6} {:>6}", "N/A", "N/A", "N/A", "N/A");
  const std::string wrong = options.checks > 0 ? std::to_string(m->wrong) : "N/A";
  return fmt::format("  {}  {}  {} {:>6}", number(m->time_us, 7), number(m->algbw_GBps, 6),
                     number(m->busbw_GBps, 6), wrong);
}

const char* redop_name(const Options& options, hocketRedOp_t op) {
  return options.reduces() ? name_of(op) : "none";
}

}  // namespace

std::string header(const Options& o, const std::vector<Place>& places, int nodes) {
  std::string text = fmt::format(
      "# hocket-perf {} nRanks {} nNodes {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} "
      "iters: {} agg iters: {} validation: {} memory: {} seed: {}\n#\n# Using ranks\n",
      name_of(o.collective), places.size(), nodes, o.min_bytes, o.max_bytes,
      o.step_factor > 1 ? static_cast<std::size_t>(o.step_factor) : o.step_bytes,
      o.step_factor > 1 ? "factor" : "bytes", o.warmup_iterations, o.iterations, o.aggregated,
      o.checks, o.alloc_memory ? "alloc" : "plain", o.seed);
  for (std::size_t r = 0; r < places.size(); ++r) {
    text += fmt::format("#  Rank {:2} Pid {:6} on {:>10} local rank {:2}\n", r, places[r].pid,
                        places[r].host, places[r].local_rank);
  }
  text += "#\n";
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:^30}  {:^30}\n", "", "", "", "", "",
                      "out-of-place", "in-place");
  const char* half_names = "  {:>7}  {:>6}  {:>6} {:>6}";
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop",
                      "root");
  for (int i = 0; i < 2; ++i) {
    text += fmt::format(fmt::runtime(half_names), "time", "algbw", "busbw", "#wrong");
  }
  text += fmt::format("\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i) {
    text += fmt::format(fmt::runtime(half_names), "(us)", "(GB/s)", "(GB/s)", "");
  }
  return text + "\n";
}

std::string row_line(const Options& o, const Measured& out, const Measured* in) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}{}{}\n", out.bytes, out.count,
                     name_of(out.dtype), redop_name(o, out.op), out.root, half(o, &out),
                     half(o, in));
}

std::string footer(const Options& o, const std::vector<Measured>& rows) {
  std::uint64_t wrong = 0;
  double busbw = 0;
  for (const Measured& row : rows) {
    wrong += row.wrong;
    busbw += row.busbw_GBps;
  }
  const std::string bounds =
      o.checks == 0 ? "N/A" : fmt::format("{} {}", wrong, wrong == 0 ? "OK" : "FAILED");
  return fmt::format("# Out of bounds values : {}\n# Avg bus bandwidth    : {:g}\n#\n", bounds,
                     rows.empty() ? 0.0 : busbw / static_cast<double>(rows.size()));
}

std::string to_json(const Options& o, const std::vector<Measured>& rows, int ranks, int nodes) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Measured& row : rows) {
    nlohmann::ordered_json object = {{"collective", name_of(o.collective)},
                                     {"bytes", row.bytes},
                                     {"count", row.count},
                                     {"dtype", name_of(row.dtype)},
                                     {"redop", redop_name(o, row.op)},
                                     {"root", row.root},
                                     {"ranks", ranks},
                                     {"nodes", nodes},
                                     {"inplace", row.in_place},
                                     {"memory", o.alloc_memory ? "alloc" : "plain"},
                                     {"time_us", row.time_us},
                                     {"p50_us", row.p50_us},
                                     {"p99_us", row.p99_us},
                                     {"algbw_GBps", row.algbw_GBps},
                                     {"busbw_GBps", row.busbw_GBps},
                                     {"wrong", row.wrong},
                                     {"algorithm", row.algorithm},
                                     {"transport", row.transport}};
    if (o.checks == 0) object["wrong"] = nullptr;
    all.push_back(std::move(object));
  }
  return all.dump(1) + "\n";
}

ProgressLine::ProgressLine(bool enabled) : enabled_(enabled && ::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(const std::string& text) {
  if (!enabled_) return;
  const double now_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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
