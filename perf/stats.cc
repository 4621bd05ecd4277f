#include "stats.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <string>

namespace hocket::perf {
namespace {

constexpr std::size_t small_bytes = 4096;
constexpr std::size_t small_slots = 64;

double combine(Average how, const std::vector<double>& ranks_values) {
  switch (how) {
    case Average::rank0:
      return ranks_values.front();
    case Average::min:
      return *std::min_element(ranks_values.begin(), ranks_values.end());
    case Average::max:
      return *std::max_element(ranks_values.begin(), ranks_values.end());
    case Average::mean:
      break;
  }
  return std::accumulate(ranks_values.begin(), ranks_values.end(), 0.0) /
         static_cast<double>(ranks_values.size());
}

double percentile(const std::vector<double>& sorted, std::size_t percent) {
  const std::size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::vector<double> average_ranks(const ByRank& by_rank, std::size_t ranks, Average how) {
  std::vector<double> result;
  for (std::size_t i = 0; i < by_rank.front().size(); ++i) {
    std::vector<double> values;
    for (std::size_t r = 0; r < ranks; ++r) values.push_back(by_rank[r][i]);
    result.push_back(combine(how, values));
  }
  return result;
}

Summary summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  Summary s;
  s.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  s.min = values.front();
  s.p50 = percentile(values, 50);
  s.p95 = percentile(values, 95);
  s.p99 = percentile(values, 99);
  s.max = values.back();
  double squares = 0;
  for (const double value : values) squares += (value - s.mean) * (value - s.mean);
  s.variation_percent = s.mean > 0 ? 100 * std::sqrt(squares / n) / s.mean : 0;
  return s;
}

Aligned align(const ByRank& start_us, const ByRank& end_us) {
  const auto last_start = average_ranks(start_us, start_us.size(), Average::max);
  const auto first_start = average_ranks(start_us, start_us.size(), Average::min);
  const auto last_end = average_ranks(end_us, end_us.size(), Average::max);
  Aligned aligned;
  for (std::size_t i = 0; i < last_end.size(); ++i) {
    aligned.time_us.push_back(last_end[i] - last_start[i]);
    aligned.skew_us.push_back(last_start[i] - first_start[i]);
  }
  return aligned;
}

double Overlap::percent() const {
  return pure_us > 0 ? std::max(0.0, 100 - 100 * (overall_us - compute_us) / pure_us) : 0;
}

bool picked(std::size_t index, std::size_t total, std::size_t wanted) {
  if (wanted == 0) return false;
  if (index + 1 == total) return true;
  if (wanted == 1) return false;
  const std::size_t share = std::min(wanted, total) - 1;  // of the ones before the last
  return index == 0 || index * share / (total - 1) != (index - 1) * share / (total - 1);
}

Slots slots_for(std::size_t bytes, std::size_t stride, std::size_t operations, std::size_t group,
                bool in_place, std::size_t cache_bytes, std::size_t copies) {
  std::size_t wanted = copies;
  if (copies == 0 && bytes <= small_bytes) wanted = small_slots;
  if (copies == 0 && bytes > small_bytes) wanted = round_up(2 * cache_bytes, stride) / stride;
  Slots slots;
  slots.out = std::min(round_up(wanted, group), round_up(operations, group));
  const bool one_more = copies == 0 && !in_place && slots.out < operations;
  slots.in = slots.out + (one_more ? 1 : 0);
  return slots;
}

std::size_t cache_bytes() {
  std::size_t largest_kib = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    std::size_t kib = 0;
    char unit = 0;
    if (file >> kib >> unit && unit == 'K') largest_kib = std::max(largest_kib, kib);
  }
  return largest_kib > 0 ? largest_kib << 10 : std::size_t{32} << 20;
}

}  // namespace hocket::perf
