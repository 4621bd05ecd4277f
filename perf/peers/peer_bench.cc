// peer_main: times a collective of a backend, and prints a JSON line for each size. fp32, sums,
// root 0. All backends share this source; measure.py starts them in turns.
//
// The unit of timing is an iteration. Above 4 KiB it is a single operation. For smaller sizes it is
// a batch of operations, each on buffers of its own, so that the cost of the timer does not matter.
// Between iterations, outside the timed interval, every rank reads all of its results (a hash),
// rewrites all of its inputs, and waits at the barrier of the session file.
#include "peer_bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "backend.h"
#include "check.h"
#include "session_file.h"

namespace hocket::peers {
namespace {

constexpr std::size_t small_bytes = 4096;
constexpr std::size_t batch_operations = 64;
constexpr int least_batches = 3;
constexpr int most_trials = 4;

struct Measured {
  Collective collective = Collective::all_reduce;
  bool varying = false;
};

struct Options {
  std::string name = "all_reduce";
  std::vector<std::size_t> sizes{8};
  std::string memory = "plain";
  std::string session;
  double seconds = 0.15;
  std::size_t offset = 0;  // floats between the start of a page and each buffer
  bool check = false;
};

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The buffers of a rank for a size. As in nccl-tests, the size is that of the larger of input and
/// output; the block of a rank has at least one element.
struct Layout {
  Layout(const Measured& measured, std::size_t bytes, int rank, int ranks) {
    const Collective collective = measured.collective;
    expectation.collective = collective;
    expectation.rank = rank;
    expectation.ranks = ranks;
    const std::size_t blocks = perf::has_parts(collective) ? static_cast<std::size_t>(ranks) : 1;
    expectation.count = std::max<std::size_t>(bytes / sizeof(float) / blocks, 1);
    expectation.varying = measured.varying;
    expectation.seed.row = bytes;
    // In an all-gather of unequal blocks the input is up to half a block longer.
    stride = (expectation.count * (blocks + 1) * sizeof(float) + 127) / 128 * 128 / sizeof(float);
    slots = bytes <= small_bytes ? batch_operations : 1;
    call.collective = collective;
    call.count = expectation.count;
    call.varying = measured.varying;
    if (!measured.varying) return;
    call.own_count = expectation.own_count(rank);
    call.blocks = expectation.blocks();
    for (int owner = 0; owner < ranks; ++owner) {
      call.input_starts.push_back(expectation.input_part(owner));
      for (int block = 0; block < ranks; ++block) {
        call.longest = std::max(call.longest, expectation.block_count(owner, block));
      }
    }
    call.int_counts.assign(call.blocks.counts.begin(), call.blocks.counts.end());
    call.int_starts.assign(call.blocks.starts.begin(), call.blocks.starts.end());
  }
  bool has_data() const { return expectation.collective != Collective::barrier; }
  perf::Expectation expectation;
  Call call;
  std::size_t stride;  // elements from one slot to the next
  std::size_t slots;
};

class Bench {
 public:
  Bench(const Options& options, const Measured& measured, SessionFile* file)
      : options_(options),
        measured_(measured),
        file_(file),
        rank_(backend_rank()),
        ranks_(backend_ranks()),
        in_place_(backend_in_place(measured.collective)),
        barrier_(file, rank_, ranks_,
                 ranks_ <= static_cast<int>(std::thread::hardware_concurrency())) {}

  bool run(std::string* error) {
    std::size_t most = 0;
    for (std::size_t bytes : options_.sizes) {
      const Layout layout(measured_, bytes, rank_, ranks_);
      most = std::max(most, layout.slots * layout.stride * sizeof(float));
    }
    const bool shared = options_.memory == "alloc";
    const auto allocate = [&] {
      void* const pages = backend_allocate(most + options_.offset * sizeof(float), shared);
      return pages == nullptr ? nullptr : static_cast<float*>(pages) + options_.offset;
    };
    out_ = allocate();
    in_ = in_place_ ? out_ : allocate();
    if (in_ == nullptr || out_ == nullptr) {
      *error = "no memory for the buffers";
      return false;
    }
    for (std::size_t bytes : options_.sizes) {
      Layout layout(measured_, bytes, rank_, ranks_);
      if (!measure(&layout, error)) return false;
      if (rank_ == 0) std::printf("%s\n", report(bytes, layout).dump().c_str());
      std::fflush(stdout);
    }
    return true;
  }

 private:
  bool measure(Layout* layout, std::string* error) {
    if (!decide(layout, error)) return false;
    barrier_us_[0] = time_barrier();
    const std::uint64_t batches = file_->batches.load();
    const std::uint64_t operations = file_->operations.load();
    for (std::uint64_t batch = 0; batch < batches; ++batch) {
      if (!one_batch(layout, operations, error)) return false;
      file_->times_us[rank_][batch] = last_us_;
    }
    barrier_us_[1] = time_barrier();
    judge(*layout, operations);
    barrier_.wait();
    return true;
  }

  nlohmann::json report(std::size_t bytes, const Layout& layout) const {
    const std::uint64_t batches = file_->batches.load();
    std::vector<double> mean(batches, 0.0);
    std::uint64_t wrong = 0;
    for (int r = 0; r < ranks_; ++r) {
      for (std::uint64_t b = 0; b < batches; ++b) mean[b] += file_->times_us[r][b] / ranks_;
      wrong += file_->wrong[r];
      if (layout.expectation.same_on_all_ranks()) wrong += file_->hash[r] != file_->hash[0];
    }
    std::sort(mean.begin(), mean.end());
    return {{"bytes", bytes},
            {"count", layout.expectation.count},
            {"iterations", batches},
            {"operations", file_->operations.load()},
            {"min_us", mean.front()},
            {"p50_us", mean[batches / 2]},
            {"p99_us", mean[batches * 99 / 100]},
            {"barrier_us", barrier_us_},
            {"checked", options_.check},
            {"wrong", wrong},
            {"version", backend_version()}};
  }

  /// The time of the session file's barrier, which tells how near the cores of the ranks are; 0:
  /// the ranks share cores.
  double time_barrier() {
    constexpr int barriers = 200, repetitions = 5;
    if (ranks_ > static_cast<int>(std::thread::hardware_concurrency())) return 0;
    std::array<double, repetitions> times;
    for (double& time : times) {
      barrier_.wait();
      const double start = now_us();
      for (int i = 0; i < barriers; ++i) barrier_.wait();
      time = (now_us() - start) / barriers;
    }
    std::sort(times.begin(), times.end());
    return times[repetitions / 2];
  }

  /// Runs trial batches, the first of one operation. After each, rank 0 decides how many operations
  /// and batches fill the time.
  bool decide(Layout* layout, std::string* error) {
    const double wanted_us = options_.seconds * 1e6;
    std::size_t operations = 1;
    bool settled = false;
    for (int trial = 0; trial < most_trials && !settled; ++trial) {
      const double start = now_us();
      if (!one_batch(layout, operations, error)) return false;
      const double gap_us = now_us() - start - last_us_ * static_cast<double>(operations);
      if (rank_ == 0) {
        const double fit = std::floor(wanted_us / least_batches / last_us_);
        const double chosen = std::clamp(fit, 1.0, static_cast<double>(layout->slots));
        const double batches = std::clamp(wanted_us / (last_us_ * chosen + gap_us),
                                          1.0 * least_batches, 1.0 * max_session_times);
        file_->operations.store(static_cast<std::uint64_t>(chosen));
        file_->batches.store(static_cast<std::uint64_t>(batches));
      }
      barrier_.wait();
      // Slow operations need no more trials, except after the first, which touches new memory.
      settled =
          trial > 0 && file_->operations.load() == 1 && file_->batches.load() == least_batches;
      operations = file_->operations.load();
      barrier_.wait();  // all ranks must read the decision before it is overwritten
    }
    return true;
  }

  bool one_batch(Layout* layout, std::size_t operations, std::string* error) {
    perf::Expectation& expectation = layout->expectation;
    hash_ = perf::hash_bytes(out_, operations * layout->stride * sizeof(float));
    ++expectation.seed.iteration;
    const bool has_input =
        layout->has_data() && (measured_.collective != Collective::broadcast || rank_ == 0);
    for (std::size_t slot = 0; slot < operations && has_input; ++slot) {
      expectation.seed.slot = slot;
      perf::generate_input(expectation, rank_, in_ + slot * layout->stride);
    }
    barrier_.wait();
    const double start = now_us();
    for (std::size_t slot = 0; slot < operations; ++slot) {
      layout->call.in = in_ + slot * layout->stride;
      layout->call.out = out_ + slot * layout->stride;
      if (!backend_run(layout->call, error)) return false;
    }
    last_us_ = (now_us() - start) / static_cast<double>(operations);
    if (measured_.collective == Collective::latency) last_us_ /= 2;  // half a round trip
    // An MPI may return from a call before it has sent all data, and send the rest in later calls.
    barrier_.wait(backend_progress);
    return true;
  }

  /// Checks the results of the last batch: the ranks compare a hash; with --check each compares
  /// every element with a reference.
  void judge(Layout layout, std::size_t operations) {
    perf::Expectation& expectation = layout.expectation;
    std::uint64_t wrong = 0;
    std::uint64_t hash = 0;
    for (std::size_t slot = 0; slot < operations && layout.has_data(); ++slot) {
      const float* result = out_ + slot * layout.stride;
      expectation.seed.slot = slot;
      if (options_.check) wrong += perf::count_wrong(expectation, result);
      hash = perf::mix(hash ^ perf::hash_bytes(result, expectation.output_count() * sizeof(float)));
    }
    file_->wrong[rank_] = wrong;
    file_->hash[rank_] = hash;
  }

  const Options& options_;
  const Measured measured_;
  SessionFile* file_;
  const int rank_;
  const int ranks_;
  const bool in_place_;
  SessionBarrier barrier_;
  float* in_ = nullptr;
  float* out_ = nullptr;
  double last_us_ = 0;
  std::array<double, 2> barrier_us_{};  // before and after the batches
  volatile std::uint64_t hash_ = 0;
};

const std::map<std::string, Measured> collectives = {
    {"all_reduce", {Collective::all_reduce}},
    {"all_gather", {Collective::all_gather}},
    {"reduce_scatter", {Collective::reduce_scatter}},
    {"broadcast", {Collective::broadcast}},
    {"reduce", {Collective::reduce}},
    {"gather", {Collective::gather}},
    {"scatter", {Collective::scatter}},
    {"alltoall", {Collective::alltoall}},
    {"barrier", {Collective::barrier}},
    {"latency", {Collective::latency}},
    {"all_gather_v", {Collective::all_gather, true}},
    {"reduce_scatter_v", {Collective::reduce_scatter, true}},
    {"gather_v", {Collective::gather, true}},
    {"scatter_v", {Collective::scatter, true}},
    {"alltoall_v", {Collective::alltoall, true}},
};

}  // namespace
}  // namespace hocket::peers

int peer_main(int argc, char** argv) {
  using namespace hocket::peers;
  Options options;
  CLI::App app{"Times one fp32 collective; started by measure.py."};
  app.add_option("--collective", options.name)->check(CLI::IsMember(collectives));
  app.add_option("--sizes", options.sizes, "bytes")
      ->delimiter(',')
      ->check(CLI::Range(0ull, 1ull << 32));
  app.add_option("--memory", options.memory)->check(CLI::IsMember({"plain", "alloc"}));
  app.add_option("--session", options.session, "file shared by the ranks, empty at first")
      ->required();
  app.add_option("--seconds", options.seconds, "for each size")->check(CLI::Range(0.001, 600.0));
  app.add_option("--offset", options.offset, "floats between the start of a page and each buffer")
      ->check(CLI::Range(0, 1023));
  app.add_flag("--check", options.check, "hold the last results of each size against a reference");
  CLI11_PARSE(app, argc, argv);

  std::string error;
  SessionFile* file = map_session(options.session, &error);
  if (file == nullptr || !backend_start(&error)) {
    std::fprintf(stderr, "peer-%s: %s\n", backend_name(), error.c_str());
    return 1;
  }
  Bench bench(options, collectives.at(options.name), file);
  if (!bench.run(&error)) {
    std::fprintf(stderr, "peer-%s: rank %d: %s\n", backend_name(), backend_rank(), error.c_str());
    return 1;
  }
  backend_stop();
  return 0;
}
