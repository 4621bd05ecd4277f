// peer-report: perf/bench's results -> the table of ratios, and JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

/// speedup: best peer's time / ours. At least this is the project's target.
struct Row {
  const char* name;
  const char* title;
  double target_speedup;
};
constexpr Row rows[] = {
    {"8B", "8 B, 2 ranks", 1 / 1.25},   {"128K", "128 KiB, 2 ranks, alloc", 3},
    {"2M", "2 MiB, 2 ranks, alloc", 3}, {"64M", "64 MiB, 2 ranks, plain", 3},
    {"64B-8ranks", "64 B, 8 ranks", 1}, {"1M-8ranks", "1 MiB, 8 ranks", 1},
    {"tcp-8B", "8 B, 2 hosts, TCP", 1}, {"tcp-64M", "64 MiB, 2 hosts, TCP", 1},
};
constexpr double most_of_raw = 1.5;  // of half a raw socket round trip, 8 B over TCP

struct Series {
  std::vector<double> p50_us;  // one per round
  std::vector<double> min_us;
  int failures = 0;
  std::uint64_t wrong = 0;
};
using Results = std::map<std::string, std::map<std::string, Series>>;  // row -> config -> series

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string text_of(double us) {
  if (us <= 0) return "-";
  if (us < 10) return fmt::format("{:.3f}", us);
  return us < 1000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

bool read(const std::string& path, Results* results) {
  std::ifstream file(path);
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_discarded()) return false;
    Series& series =
        (*results)[parsed.value("row", std::string())][parsed.value("config", std::string())];
    const auto& result = parsed["result"];
    if (result.is_null()) {
      ++series.failures;
      continue;
    }
    series.p50_us.push_back(result.value("p50_us", 0.0));
    series.min_us.push_back(result.value("min_us", 0.0));
    series.wrong += result.value("wrong", std::uint64_t{0});
  }
  return true;
}

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

/// The best configuration of a peer; empty where none has a time.
std::string best_of(const std::map<std::string, Series>& series, const char* peer) {
  std::string best;
  for (const auto& [config, s] : series) {
    if (!starts_with(config, peer) || s.p50_us.empty()) continue;
    if (best.empty() || median(s.p50_us) < median(series.at(best).p50_us)) best = config;
  }
  return best;
}

nlohmann::ordered_json summarise(const Row& row, const std::map<std::string, Series>& series) {
  nlohmann::ordered_json object = {{"row", row.name}, {"title", row.title}};
  std::string best;
  for (const char* peer : {"hocket", "openmpi", "mpich", "gloo", "raw-socket"}) {
    const std::string config = best_of(series, peer);
    const double p50_us = config.empty() ? 0 : median(series.at(config).p50_us);
    object[peer] = {
        {"config", config},
        {"p50_us", p50_us},
        {"rounds_p50_us", config.empty() ? std::vector<double>{} : series.at(config).p50_us}};
    const bool is_peer = peer != std::string("hocket") && peer != std::string("raw-socket");
    if (is_peer && !config.empty() &&
        (best.empty() || p50_us < object[best].value("p50_us", 0.0))) {
      best = peer;
    }
  }
  const double ours_us = object["hocket"].value("p50_us", 0.0);
  const double best_us = best.empty() ? 0 : object[best].value("p50_us", 0.0);
  object["best_peer"] = best;
  object["speedup"] = ours_us > 0 && best_us > 0 ? best_us / ours_us : 0.0;
  object["target_speedup"] = row.target_speedup;
  const double raw_us = object["raw-socket"].value("p50_us", 0.0);
  object["times_raw"] = ours_us > 0 && raw_us > 0 ? ours_us / raw_us : 0.0;
  return object;
}

std::string met(double value, bool good) {
  return value <= 0 ? "not measured" : good ? "met" : "MISSED";
}

void print(const nlohmann::ordered_json& row) {
  const auto time = [&](const char* who) { return text_of(row[who].value("p50_us", 0.0)); };
  const double speedup = row.value("speedup", 0.0), target = row.value("target_speedup", 0.0);
  fmt::print("{:<24} {:>9} {:>9} {:>9} {:>9}  {:<8} {:>7} {:>9}  {}\n",
             row.value("title", std::string()), time("hocket"), time("openmpi"), time("mpich"),
             time("gloo"), row.value("best_peer", std::string()),
             speedup > 0 ? fmt::format("{:.2f}x", speedup) : "-", fmt::format(">= {:g}x", target),
             met(speedup, speedup >= target));
  const double times_raw = row.value("times_raw", 0.0);
  if (row["raw-socket"].value("p50_us", 0.0) <= 0) return;
  fmt::print("{:<24} {:>9} {:>9} half a raw socket round trip {:>16} {:>9}  {}\n", "", "",
             time("raw-socket"), times_raw > 0 ? fmt::format("{:.2f} of it", times_raw) : "-",
             fmt::format("<= {:g}", most_of_raw), met(times_raw, times_raw <= most_of_raw));
}

}  // namespace

int main(int argc, char** argv) {
  std::string path, json_path;
  CLI::App app{"perf/bench's table."};
  app.add_option("--results", path)->required();
  app.add_option("--json", json_path);
  CLI11_PARSE(app, argc, argv);
  Results results;
  if (!read(path, &results)) {
    std::fprintf(stderr, "peer-report: %s is not what perf/bench writes\n", path.c_str());
    return 1;
  }
  fmt::print("fp32 sum all-reduce, out of place; microseconds, median of the rounds' medians\n");
  fmt::print("{:<24} {:>9} {:>9} {:>9} {:>9}  {:<8} {:>7} {:>9}\n", "", "hocket", "Open MPI",
             "MPICH", "Gloo", "best", "speedup", "target");
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    if (results.count(row.name) == 0) continue;
    all.push_back(summarise(row, results.at(row.name)));
    print(all.back());
  }
  std::uint64_t wrong = 0;
  for (const auto& [row, configs] : results) {
    for (const auto& [config, series] : configs) {
      wrong += series.wrong;
      if (series.wrong > 0) fmt::print("WRONG RESULTS: {} of {}\n", config, row);
      if (series.failures > 0)
        fmt::print("# {} of {}: {} failed runs\n", config, row, series.failures);
    }
  }
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << all.dump(1) << "\n";
    file.close();
    if (!file) {
      std::fprintf(stderr, "peer-report: cannot write %s\n", json_path.c_str());
      return 1;
    }
  }
  return wrong == 0 ? 0 : 1;
}
