// peer-NAME: times one size of fp32 sum all-reduce, out of place, over one backend, and prints one
// JSON line. All backends get this same source; perf/bench starts them in turns.
//
// An iteration is one timed stretch. Above 4 KiB it is one operation; at or below, a batch of them,
// each on buffers of its own, so that the timer is not what is measured. Between iterations,
// outside the timed stretch, every rank reads all of its results (a hash), rewrites all of its
// inputs, and waits at the session file's barrier.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "backend.h"
#include "data.h"
#include "session_file.h"

namespace hocket::peers {
namespace {

constexpr std::size_t small_bytes = 4096;
constexpr std::size_t batch_operations = 64;
constexpr int least_batches = 5;

struct Options {
  std::size_t bytes = 8;
  std::string memory = "plain";
  std::string session;
  std::string rendezvous;
  std::string interface_address;
  double seconds = 0.3;
};

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Bench {
 public:
  Bench(const Options& options, SessionFile* file)
      : options_(options),
        file_(file),
        rank_(backend_rank()),
        ranks_(backend_ranks()),
        count_(options.bytes / sizeof(float)),
        stride_((options.bytes + 127) / 128 * 128 / sizeof(float)),
        slots_(options.bytes <= small_bytes ? batch_operations : 1),
        barrier_(file, rank_, ranks_,
                 ranks_ <= static_cast<int>(std::thread::hardware_concurrency())) {}

  bool run(std::string* error) {
    const bool shared = options_.memory == "alloc";
    in_ = static_cast<float*>(backend_allocate(slots_ * stride_ * sizeof(float), shared));
    out_ = static_cast<float*>(backend_allocate(slots_ * stride_ * sizeof(float), shared));
    if (in_ == nullptr || out_ == nullptr) {
      *error = "no memory for the buffers";
      return false;
    }
    if (!decide(error)) return false;
    const std::uint64_t batches = file_->batches.load();
    for (batch_ = 1; batch_ <= batches; ++batch_) {
      if (!one_batch(file_->operations.load(), error)) return false;
      file_->times_us[rank_][batch_ - 1] = last_us_;
    }
    --batch_;
    check(file_->operations.load());
    barrier_.wait();
    return true;
  }

  nlohmann::json report() const {
    const std::uint64_t batches = file_->batches.load();
    std::vector<double> mean(batches, 0.0);
    std::uint64_t wrong = 0;
    for (int r = 0; r < ranks_; ++r) {
      for (std::uint64_t b = 0; b < batches; ++b) mean[b] += file_->times_us[r][b] / ranks_;
      wrong += file_->wrong[r] + (file_->hash[r] != file_->hash[0]);
    }
    std::sort(mean.begin(), mean.end());
    double sum = 0;
    for (double t : mean) sum += t;
    return {{"backend", backend_name()},
            {"bytes", options_.bytes},
            {"ranks", ranks_},
            {"memory", options_.memory},
            {"iterations", batches},
            {"operations", file_->operations.load()},
            {"min_us", mean.front()},
            {"p50_us", mean[batches / 2]},
            {"mean_us", sum / batches},
            {"p99_us", mean[batches * 99 / 100]},
            {"wrong", wrong}};
  }

 private:
  std::uint64_t seed(int rank, std::size_t slot) const {
    perf::Seed seed;
    seed.row = options_.bytes;
    seed.iteration = batch_;
    seed.slot = slot;
    seed.rank = static_cast<std::uint64_t>(rank);
    return seed.value();
  }

  /// A trial operation and, where operations are quick, trial batches; after each, rank 0 says for
  /// all how many operations and batches fill the time.
  bool decide(std::string* error) {
    const double wanted_us = options_.seconds * 1e6;
    std::size_t operations = 1;
    for (int trial = 0; trial < 4; ++trial) {
      const double start = now_us();
      if (!one_batch(operations, error)) return false;
      const double gap_us = now_us() - start - last_us_ * static_cast<double>(operations);
      if (rank_ == 0) {
        const double fit = std::floor(wanted_us / least_batches / last_us_);
        const double chosen = std::clamp(fit, 1.0, static_cast<double>(slots_));
        file_->operations.store(static_cast<std::uint64_t>(chosen));
        file_->batches.store(
            static_cast<std::uint64_t>(std::clamp(wanted_us / (last_us_ * chosen + gap_us),
                                                  1.0 * least_batches, 1.0 * max_session_times)));
      }
      barrier_.wait();
      operations = file_->operations.load();
      barrier_.wait();  // nobody overwrites the decision before all have read it
    }
    return true;
  }

  bool one_batch(std::size_t operations, std::string* error) {
    hash_ = perf::hash_bytes(out_, operations * stride_ * sizeof(float));
    for (std::size_t slot = 0; slot < operations; ++slot) {
      perf::generate(in_ + slot * stride_, 0, count_, hocketFloat32, perf::Spread::sum,
                     seed(rank_, slot));
    }
    barrier_.wait();
    const double start = now_us();
    for (std::size_t slot = 0; slot < operations; ++slot) {
      if (!backend_all_reduce(in_ + slot * stride_, out_ + slot * stride_, count_, error)) {
        return false;
      }
    }
    last_us_ = (now_us() - start) / static_cast<double>(operations);
    return true;
  }

  /// The results of the last timed batch, against an fp64 reference. fp32 sums of n values are off
  /// by at most n - 1 roundings of the sum of magnitudes, in whatever order they were added.
  void check(std::size_t operations) {
    const double bound = (ranks_ - 1) * std::ldexp(1.0, -24) * 1.0001;
    std::vector<float> input(count_);
    std::uint64_t wrong = 0;
    std::uint64_t hash = 0;
    for (std::size_t slot = 0; slot < operations; ++slot) {
      std::vector<double> sum(count_, 0.0), magnitude(count_, 0.0);
      for (int r = 0; r < ranks_; ++r) {
        perf::generate(input.data(), 0, count_, hocketFloat32, perf::Spread::sum, seed(r, slot));
        for (std::size_t i = 0; i < count_; ++i) {
          sum[i] += input[i];
          magnitude[i] += std::fabs(input[i]);
        }
      }
      const float* got = out_ + slot * stride_;
      for (std::size_t i = 0; i < count_; ++i) {
        wrong += !(std::fabs(got[i] - sum[i]) <= bound * magnitude[i]);
      }
      hash = perf::mix(hash ^ perf::hash_bytes(got, count_ * sizeof(float)));
    }
    file_->wrong[rank_] = wrong;
    file_->hash[rank_] = hash;
  }

  const Options& options_;
  SessionFile* file_;
  const int rank_;
  const int ranks_;
  const std::size_t count_;
  const std::size_t stride_;  // elements from one slot to the next
  const std::size_t slots_;
  SessionBarrier barrier_;
  float* in_ = nullptr;
  float* out_ = nullptr;
  std::uint64_t batch_ = 0;
  double last_us_ = 0;
  volatile std::uint64_t hash_ = 0;
};

}  // namespace
}  // namespace hocket::peers

int main(int argc, char** argv) {
  using namespace hocket::peers;
  Options options;
  CLI::App app{"Times one size of fp32 all-reduce; started by perf/bench."};
  app.add_option("--bytes", options.bytes)->check(CLI::Range(4ull, 1ull << 32));
  app.add_option("--memory", options.memory)->check(CLI::IsMember({"plain", "alloc"}));
  app.add_option("--session", options.session, "file shared by the ranks, empty at first")
      ->required();
  app.add_option("--rendezvous", options.rendezvous, "directory of the run (Gloo)");
  app.add_option("--interface", options.interface_address, "address to bind");
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.001, 600.0));
  CLI11_PARSE(app, argc, argv);

  std::string error;
  SessionFile* file = map_session(options.session, &error);
  if (file == nullptr || !backend_start(options.interface_address, options.rendezvous, &error)) {
    std::fprintf(stderr, "peer-%s: %s\n", backend_name(), error.c_str());
    return 1;
  }
  Bench bench(options, file);
  if (!bench.run(&error)) {
    std::fprintf(stderr, "peer-%s: rank %d: %s\n", backend_name(), backend_rank(), error.c_str());
    return 1;
  }
  if (backend_rank() == 0) std::printf("%s\n", bench.report().dump().c_str());
  std::fflush(stdout);
  backend_stop();
  return 0;
}
