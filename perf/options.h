// What hocket-perf was asked to do: nccl-tests' flags where they make sense for ranks that are
// processes with CPU memory, and a few of our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hocket/hocket.h"

namespace hocket::perf {

enum class Collective { all_reduce, all_gather, reduce_scatter, broadcast, sendrecv };
inline constexpr int collective_count = 5;
const char* name_of(Collective collective);  // "all_reduce"

/// What a rank's "-a" makes of the ranks' times.
enum class Average { rank0 = 0, mean = 1, min = 2, max = 3 };

struct Options {
  Collective collective = Collective::all_reduce;
  std::size_t min_bytes = 32 << 20;
  std::size_t max_bytes = 32 << 20;
  std::size_t step_bytes = 1 << 20;
  int step_factor = 1;  // above 1: multiply instead of adding step_bytes
  int iterations = 20;
  int warmup_iterations = 1;
  int aggregated = 1;  // operations per group
  int checks = 1;      // timed iterations held against the reference at least; 0: no check
  int cycles = 1;      // times the whole table is run
  std::vector<hocketDataType_t> dtypes{hocketFloat32};
  std::vector<hocketRedOp_t> ops{hocketSum};
  int root = 0;  // -1: every rank in turn
  bool host_stream = false;
  Average average = Average::mean;
  int deadline_s = 0;  // 0: the library's default
  bool alloc_memory = false;
  std::string json_path;
  std::uint64_t seed = 1;

  bool reduces() const {
    return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
  }
  std::vector<std::size_t> sizes() const;  // in bytes, ascending
};

/// "8", "4K", "1.5M", "2G" (powers of 1024, also "KiB", "KB"); nothing where it is no size.
std::optional<std::size_t> parse_size(const std::string& text);

/// Fills *options. Nothing: go on. Otherwise the exit status: 0 after --help, 2 after a mistake;
/// *text is what to print.
std::optional<int> parse_options(int argc, char** argv, Options* options, std::string* text);

}  // namespace hocket::perf
