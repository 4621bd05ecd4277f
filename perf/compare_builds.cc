// Compares builds of libhocket by small calls, as in
//   hocket-run -n 2 --bind-to core compare_builds old/libhocket.so new/libhocket.so
//
// Each process loads all libraries, each into a namespace of its own, and makes a communicator in
// each. The libraries take turns of some thousand calls, so what changes the speed of the machine
// meanwhile, such as other guests of its host, changes it for all libraries alike. The times of
// one library may vary by a factor of two from run to run.
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "clock.h"
#include "hocket/hocket.h"
#include "stats.h"

namespace hocket::perf {
namespace {

enum class Collective : std::size_t {
  barrier,
  broadcast,
  reduce,
  gather,
  scatter,
  all_reduce,
  all_gather,
  reduce_scatter,
  alltoall
};
// By Collective.
constexpr std::array names = {"barrier",    "broadcast",  "reduce",         "gather",  "scatter",
                              "all_reduce", "all_gather", "reduce_scatter", "alltoall"};

/// A collective of fp32, and the bytes of the block of a rank.
struct Case {
  Collective collective{};
  std::size_t bytes = 0;
};

struct Options {
  std::vector<std::string> libraries;
  std::vector<std::string> calls{
      "barrier",        "broadcast:8",  "broadcast:512",    "reduce:8",    "reduce:512",
      "gather:8",       "gather:512",   "scatter:8",        "scatter:512", "all_reduce:8",
      "all_reduce:512", "all_gather:8", "reduce_scatter:8", "alltoall:8"};
  int turns = 60;
  int iterations = 3000;
};

/// The functions of one build, and its communicator.
class Library {
 public:
  explicit Library(const std::string& file)
      : handle_(::dlmopen(LM_ID_NEWLM, file.c_str(), RTLD_NOW)) {
    if (handle_ == nullptr) throw std::runtime_error(::dlerror());
    load(init_from_env_, "hocketCommInitFromEnv");
    load(get_unique_id_, "hocketGetUniqueId");
    load(init_rank_, "hocketCommInitRank");
    load(user_rank_, "hocketCommUserRank");
    load(count_, "hocketCommCount");
    load(destroy_, "hocketCommDestroy");
    load(last_error_, "hocketGetLastError");
    load(barrier_, "hocketBarrier");
    load(broadcast_, "hocketBroadcast");
    load(reduce_, "hocketReduce");
    load(gather_, "hocketGather");
    load(scatter_, "hocketScatter");
    load(all_reduce_, "hocketAllReduce");
    load(all_gather_, "hocketAllGather");
    load(reduce_scatter_, "hocketReduceScatter");
    load(alltoall_, "hocketAlltoAll");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// For the first library: joins the ranks that the launcher has started.
  void join() {
    check(init_from_env_(&comm_, nullptr));
    check(user_rank_(comm_, &rank_));
    check(count_(comm_, &ranks_));
  }
  /// For each other library. first: broadcasts the unique id of the new communicator.
  void join(const Library& first) {
    rank_ = first.rank_;
    ranks_ = first.ranks_;
    hocketUniqueId id{};
    if (rank_ == 0) check(get_unique_id_(&id));
    first.check(first.broadcast_(&id, &id, sizeof id, hocketInt8, 0, first.comm_, nullptr));
    check(init_rank_(&comm_, ranks_, id, rank_));
  }
  void leave() { check(destroy_(comm_)); }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  void barrier() const { check(barrier_(comm_, nullptr)); }
  void call(const Case& what, const float* in, float* out) const {
    const std::size_t n = what.bytes / sizeof(float);
    switch (what.collective) {
      case Collective::barrier:
        return check(barrier_(comm_, nullptr));
      case Collective::broadcast:
        return check(broadcast_(in, out, n, hocketFloat32, 0, comm_, nullptr));
      case Collective::reduce:
        return check(reduce_(in, out, n, hocketFloat32, hocketSum, 0, comm_, nullptr));
      case Collective::gather:
        return check(gather_(in, out, n, hocketFloat32, 0, comm_, nullptr));
      case Collective::scatter:
        return check(scatter_(in, out, n, hocketFloat32, 0, comm_, nullptr));
      case Collective::all_reduce:
        return check(all_reduce_(in, out, n, hocketFloat32, hocketSum, comm_, nullptr));
      case Collective::all_gather:
        return check(all_gather_(in, out, n, hocketFloat32, comm_, nullptr));
      case Collective::reduce_scatter:
        return check(reduce_scatter_(in, out, n, hocketFloat32, hocketSum, comm_, nullptr));
      case Collective::alltoall:
        return check(alltoall_(in, out, n, hocketFloat32, comm_, nullptr));
    }
  }

 private:
  template <typename Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(::dlerror());
  }
  void check(hocketResult_t result) const {
    if (result != hocketSuccess) [[unlikely]]
      throw std::runtime_error(last_error_(nullptr));
  }

  void* handle_;  // open until the process ends: threads of the library may run until then
  decltype(&hocketCommInitFromEnv) init_from_env_ = nullptr;
  decltype(&hocketGetUniqueId) get_unique_id_ = nullptr;
  decltype(&hocketCommInitRank) init_rank_ = nullptr;
  decltype(&hocketCommUserRank) user_rank_ = nullptr;
  decltype(&hocketCommCount) count_ = nullptr;
  decltype(&hocketCommDestroy) destroy_ = nullptr;
  decltype(&hocketGetLastError) last_error_ = nullptr;
  decltype(&hocketBarrier) barrier_ = nullptr;
  decltype(&hocketBroadcast) broadcast_ = nullptr;
  decltype(&hocketReduce) reduce_ = nullptr;
  decltype(&hocketGather) gather_ = nullptr;
  decltype(&hocketScatter) scatter_ = nullptr;
  decltype(&hocketAllReduce) all_reduce_ = nullptr;
  decltype(&hocketAllGather) all_gather_ = nullptr;
  decltype(&hocketReduceScatter) reduce_scatter_ = nullptr;
  decltype(&hocketAlltoAll) alltoall_ = nullptr;
  hocketComm_t comm_ = nullptr;
  int rank_ = 0, ranks_ = 1;
};

using Libraries = std::vector<std::unique_ptr<Library>>;

/// text: NAME or NAME:BYTES.
Case case_of(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  Case result;
  const auto name = std::ranges::find(names, std::string_view(text).substr(0, colon));
  if (name == names.end()) {
    throw CLI::ValidationError("--calls",
                               fmt::format("{}: not one of {}", text, fmt::join(names, ", ")));
  }
  result.collective = static_cast<Collective>(name - names.begin());
  if (colon == text.size()) return result;
  try {
    std::size_t end = 0;
    const std::string bytes = text.substr(colon + 1);
    result.bytes = std::stoull(bytes, &end);
    if (end == bytes.size() && result.bytes % sizeof(float) == 0 && result.bytes <= 1 << 20)
      return result;
  } catch (const std::exception&) {
  }
  throw CLI::ValidationError("--calls", text + ": the bytes are a multiple of 4, up to 1 MiB");
}

/// Microseconds of a call: a vector for each library, with a value for each turn.
std::vector<std::vector<double>> measure(const Libraries& libraries, const Case& what,
                                         const Options& options) {
  const auto ranks = static_cast<std::size_t>(libraries.front()->ranks());
  const std::size_t elements = what.bytes / sizeof(float) * ranks + 1;
  const std::vector<float> in(elements, 1.0F);
  std::vector<float> out(elements);
  std::vector<std::vector<double>> times(libraries.size());
  for (int turn = 0; turn < options.turns; ++turn) {
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      const Library& library = *libraries[i];
      for (int c = 0; c < options.iterations / 10; ++c) library.call(what, in.data(), out.data());
      library.barrier();
      library.call(what, in.data(), out.data());  // the next one repeats the call before
      const double start = now_us();
      for (int c = 0; c < options.iterations; ++c) library.call(what, in.data(), out.data());
      times[i].push_back((now_us() - start) / options.iterations);
    }
  }
  return times;
}

/// The median over the turns of the time over that of the first library.
double median_ratio(const std::vector<double>& times, const std::vector<double>& first) {
  std::vector<double> ratios;
  for (std::size_t turn = 0; turn < times.size(); ++turn) {
    ratios.push_back(times[turn] / first[turn]);
  }
  return summarise(ratios).p50;
}

void print(const std::string& call, const std::vector<std::vector<double>>& times) {
  fmt::print("{:20}", call);
  for (const std::vector<double>& of : times) {
    fmt::print("  {:8.4f} {:5.2f}", summarise(of).p50, median_ratio(of, times.front()));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void compare(const Options& options, const std::vector<Case>& cases) {
  Libraries libraries;
  for (const std::string& file : options.libraries) {
    libraries.push_back(std::make_unique<Library>(file));
  }
  libraries.front()->join();
  for (std::size_t i = 1; i < libraries.size(); ++i) libraries[i]->join(*libraries.front());
  const bool prints = libraries.front()->rank() == 0;
  if (prints) {
    fmt::print(
        "# {} ranks, {} turns of {} calls. For each library: the median time of a call on rank 0 "
        "in\n"
        "# microseconds, and the median of its ratio to the time of the first library in the same "
        "turn\n",
        libraries.front()->ranks(), options.turns, options.iterations);
    for (std::size_t i = 0; i < options.libraries.size(); ++i) {
      fmt::print("# library {}: {}\n", i + 1, options.libraries[i]);
    }
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::vector<std::vector<double>> times = measure(libraries, cases[i], options);
    if (prints) print(options.calls[i], times);
  }
  for (const std::unique_ptr<Library>& library : libraries) library->leave();
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Compares builds of libhocket by the times of small calls, in turns, as in\n"
      "  hocket-run -n 2 --bind-to core compare_builds old/libhocket.so new/libhocket.so");
  app.add_option("libraries", options.libraries,
                 "the files of the builds; the first joins the ranks")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--calls", options.calls, "collectives with the bytes of a rank's block")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  app.add_option("--turns", options.turns, "turns of each library")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations, "calls of a turn")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  std::vector<Case> cases;
  try {
    app.parse(argc, argv);
    for (const std::string& call : options.calls) cases.push_back(case_of(call));
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  try {
    compare(options, cases);
  } catch (const std::exception& error) {
    fmt::print(stderr, "compare_builds: {}\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace hocket::perf

int main(int argc, char** argv) {
  const int status = hocket::perf::run(argc, argv);
  std::fflush(nullptr);
  std::_Exit(status);  // libcrypto, which each namespace has, fails in the handlers of exit
}
