// The options of hocket-perf: the flags of nccl-tests that make sense for ranks that are processes
// with CPU memory, and some more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hocket/hocket.h"

namespace hocket::perf {

/// What a program measures. First the collectives of nccl-tests; then the barrier, which moves no
/// data; then three measurements of messages between pairs of ranks, as osu_latency, osu_bw and
/// osu_bibw of the OSU micro-benchmarks.
enum class Collective {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  alltoall,
  sendrecv,
  barrier,
  latency,
  bandwidth,
  bibandwidth
};
inline constexpr int collective_count = 13;
std::string name_of(Collective collective, bool varying = false);  // "all_reduce", "all_gather_v"
inline bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}
inline bool has_redop(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}
/// True if the input, or the output, has a part for each rank.
inline bool has_input_parts(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::scatter ||
         collective == Collective::alltoall;
}
inline bool has_output_parts(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::gather ||
         collective == Collective::alltoall;
}
/// True if some buffer has a part for each rank. Then there is a call with parts of different
/// counts too: the v-variant.
inline bool has_parts(Collective collective) {
  return has_input_parts(collective) || has_output_parts(collective);
}
inline bool is_pair(Collective collective) { return collective >= Collective::latency; }

/// How -a combines the times of the ranks.
enum class Average { rank0 = 0, mean = 1, min = 2, max = 3 };

/// What is timed between two clock reads; docs/BENCHMARKS.md has the definitions.
enum class Method { back_to_back, barrier, aligned, overlap };
const char* name_of(Method method);  // "back-to-back"

/// nccl-tests' -z.
enum class Blocking {
  stream = 0,            // calls on a host stream; one wait after the last
  wait_and_barrier = 1,  // calls in the caller's thread, a barrier after each, both timed
  wait = 2,              // calls in the caller's thread
};

struct Options {
  Collective collective = Collective::all_reduce;
  bool varying = false;  // the v-variant
  Method method = Method::back_to_back;
  std::size_t min_bytes = 32 << 20;
  std::size_t max_bytes = 32 << 20;
  std::size_t step_bytes = 1 << 20;
  int step_factor = 1;  // above 1: multiply instead of adding step_bytes
  int iterations = 20;
  int warmup_iterations = 1;
  int aggregated = 1;  // operations per group
  int window = 64;     // messages per group (bandwidth, bibandwidth)
  int buffers = 0;     // copies that calls rotate through; 0: depends on the caches
  int checks = 1;      // least number of results that are checked; 0: no check
  int cycles = 1;      // repetitions of the whole table; 0: without end
  std::vector<hocketDataType_t> dtypes{hocketFloat32};
  std::vector<hocketRedOp_t> ops{hocketSum};
  int root = 0;  // -1: every rank in turn
  Blocking blocking = Blocking::stream;
  Average average = Average::mean;
  int deadline_s = 0;       // 0: the library's default
  bool cpu_time = false;    // the time column shows the time in the calls alone
  bool timestamps = false;  // each row ends with the time of day
  bool registered = false;  // buffers are given to hocketCommRegister
  int unaligned = 0;        // elements by which every buffer is misaligned
  bool each_iteration = false;
  int skipped = 0;  // first iterations that the per-iteration columns leave out
  bool verbose = false;
  bool explain = false;        // every algorithm beside its predicted time
  double explain_seconds = 1;  // for a size
  bool alloc_memory = false;
  std::string json_path;
  std::string nccl_json_path;
  std::optional<double> min_bus_bandwidth;  // GB/s; NCCL_TESTS_MIN_BW
  std::uint64_t seed = 1;

  bool reduces() const { return has_redop(collective); }
  bool has_data() const { return collective != Collective::barrier; }
  /// In tables and files: "none" where the collective has no operator, or no data.
  const char* redop_name(hocketRedOp_t op) const;
  const char* dtype_name(hocketDataType_t dtype) const;
  bool has_in_place() const {
    return collective < Collective::alltoall && method != Method::overlap;
  }
  bool needs_stream() const { return blocking == Blocking::stream || method == Method::overlap; }
  /// True if the time of every iteration is needed, although the method alone does not measure it.
  bool times_each() const { return each_iteration || verbose; }
  /// Operations per iteration, for a row of this size.
  int group_of(std::size_t bytes) const;
  std::vector<std::size_t> sizes() const;  // in bytes, ascending
  std::string name() const { return name_of(collective, varying); }
  std::string program() const { return name() + "_perf"; }
};

/// Parses "8", "4K", "1.5M", "2G" (powers of 1024, also "KiB", "KB"); nothing if it is no size.
std::optional<std::size_t> parse_size(const std::string& text);

/// Sets *options. Returns nothing if the program must go on, else the exit status (0 after --help,
/// 2 after a wrong flag); then *text must be printed.
std::optional<int> parse_options(int argc, char** argv, Options* options, std::string* text);

}  // namespace hocket::perf
