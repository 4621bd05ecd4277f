#include "flags.h"

#include <fmt/format.h>

#include "data.h"

namespace hocket::perf {
namespace {

struct Alias {
  const char* name;
  hocketDataType_t dtype;
};
constexpr Alias aliases[] = {{"float16", hocketFloat16},        {"float32", hocketFloat32},
                             {"float64", hocketFloat64},        {"bf16", hocketBfloat16},
                             {"fp16", hocketFloat16},           {"fp32", hocketFloat32},
                             {"fp64", hocketFloat64},           {"float8_e4m3", hocketFloat8e4m3},
                             {"float8_e5m2", hocketFloat8e5m2}, {"fp8_e4m3", hocketFloat8e4m3},
                             {"fp8_e5m2", hocketFloat8e5m2}};

std::string set_dtypes(const std::string& text, std::vector<hocketDataType_t>* dtypes) {
  dtypes->clear();
  std::string known;
  for (const hocketDataType_t dtype : all_dtypes()) {
    if (text == "all" || text == name_of(dtype)) dtypes->push_back(dtype);
    known += std::string(name_of(dtype)) + ", ";
  }
  for (const Alias& alias : aliases) {
    if (text == alias.name) dtypes->push_back(alias.dtype);
  }
  if (!dtypes->empty()) return {};
  return fmt::format("'{}' is no datatype; known are {}all", text, known);
}

std::string set_ops(const std::string& text, std::vector<hocketRedOp_t>* ops) {
  ops->clear();
  std::string known;
  for (const hocketRedOp_t op : all_ops()) {
    if (text == "all" || text == name_of(op)) ops->push_back(op);
    known += std::string(name_of(op)) + ", ";
  }
  if (!ops->empty()) return {};
  return fmt::format("'{}' is no operator; known are {}all", text, known);
}

std::string set_root(const std::string& text, int* root) {
  if (text == "all" || text == "-1") {
    *root = -1;
    return {};
  }
  if (CLI::detail::lexical_cast(text, *root) && *root >= 0) return {};
  return fmt::format("'{}' is no rank; give its number, or all", text);
}

std::string set_blocking(const std::string& text, std::optional<int>* blocking) {
  *blocking = text.size() == 1 ? text[0] - '0' : -1;
  if (**blocking >= 0 && **blocking <= 3) return {};
  return fmt::format(
      "'{}' is not 0 (calls on a host stream), 1 (wait and barrier after each call), 2 (wait after "
      "each call) or 3 (barrier after each iteration, not timed)",
      text);
}

std::string set_size(const std::string& text, std::size_t* bytes) {
  const auto parsed = parse_size(text);
  if (!parsed) {
    return fmt::format("'{}' is no size; give bytes, or a number with K, M or G", text);
  }
  *bytes = *parsed;
  return {};
}

std::string set_switch(const std::string& text, bool* on) {
  *on = text == "1";
  return text == "0" || text == "1" ? "" : fmt::format("'{}' is neither 0 nor 1", text);
}

std::string set_registered(const std::string& text, bool* on) {
  if (text == "2") {
    return "2 is symmetric memory, which hocket does not have; nearest to it is --memory alloc";
  }
  return set_switch(text, on);
}

std::string set_average(const std::string& text, Average* average) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') {
    return fmt::format("'{}' is not 0 (rank 0's time), 1 (mean), 2 (least) or 3 (most)", text);
  }
  *average = static_cast<Average>(text[0] - '0');
  return {};
}

/// In newer versions of nccl-tests -M is also --memory.
std::string set_memory(const std::string& text, bool* alloc) {
  *alloc = text == "alloc";
  if (text == "1") return "1 is nccl-tests' report about GPU memory, of which there is none";
  if (*alloc || text == "plain" || text == "0") return {};
  return fmt::format("'{}' is neither plain nor alloc", text);
}

std::string set_nccl_json(const std::string& text, std::string* path) {
  *path = text;
  if (text.size() > 5 && text.substr(text.size() - 5) == ".json") return {};
  return fmt::format("'{}' does not end in .json, the only format there is", text);
}

/// Adds a flag with a value. CLI11 calls `set` with the value; if `set` returns an error text, the
/// parse fails with an error that names the flag.
template <typename Set, typename Target>
CLI::Option* add(CLI::App* app, const std::string& flags, Set set, Target* target,
                 const std::string& help) {
  const std::string name = flags.substr(0, flags.find(','));
  return app
      ->add_option(
          flags,
          [name, set, target](const CLI::results_t& words) {
            const std::string problem = set(words.at(0), target);
            if (!problem.empty()) throw CLI::ValidationError(name, problem);
            return true;
          },
          help)
      ->expected(1);
}

struct Foreign {
  const char* flags;
  const char* harmless;  // the value that has no effect; "": there is none
  const char* why;
};
/// Flags of nccl-tests that have no meaning here: they are refused with the reason, not ignored.
constexpr Foreign foreign[] = {
    {"-t,--nthreads", "1", "a rank is a process with one thread; start ranks with hocket-run -n"},
    {"-g,--ngpus", "1", "ranks own CPU memory, no GPUs; start ranks with hocket-run -n"},
    {"-p,--parallel_init", "0", "a process has one rank, so there is no second one to join beside"},
    {"-G,--cudagraph", "0", "there are no CUDA graphs on CPU memory"},
    {"-x,--cta_policy", "", "there are no CTAs on a CPU"},
    {"-D,--device_implementation", "0", "there is no device code"},
    {"-V,--device_cta_count", "", "there are no CTAs on a CPU"},
    {"-M,--memory_report", "0", "the report is about GPU memory, of which there is none"},
};

void add_foreign(CLI::App* app) {
  for (const Foreign& flag : foreign) {
    const std::string names = flag.flags;
    app->add_option(names,
                    [flag, names](const CLI::results_t& words) -> bool {
                      const bool has_harmless = *flag.harmless != '\0';
                      if (has_harmless && !words.empty() && words[0] == flag.harmless) return true;
                      throw CLI::ValidationError(names.substr(0, 2), flag.why);
                    })
        ->expected(0, 1)  // without a value it is refused too, for the same reason
        ->group("");
  }
}

void add_sizes(CLI::App* app, Options* o) {
  add(app, "-b,--minbytes", set_size, &o->min_bytes, "smallest size (32M)");
  add(app, "-e,--maxbytes", set_size, &o->max_bytes, "largest size (32M)");
  auto* step =
      add(app, "-i,--stepbytes", set_size, &o->step_bytes, "add so much from size to size (1M)");
  app->add_option("-f,--stepfactor", o->step_factor, "multiply by so much from size to size")
      ->check(CLI::Range(0, 1 << 20))
      ->excludes(step);
}

void add_counts(CLI::App* app, Options* o) {
  app->add_option("-n,--iters", o->iterations, "timed iterations (20); small sizes need 1000")
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("-w,--warmup_iters", o->warmup_iterations, "iterations before the timer (1)")
      ->check(CLI::Range(0, 1'000'000));
  app->add_option("-m,--agg_iters", o->aggregated, "operations fused in one group (1)")
      ->check(CLI::Range(1, 64));
  app->add_option("-N,--run_cycles", o->cycles, "times the table is run; 0: for ever (1)")
      ->check(CLI::Range(0, 1'000'000));
  app->add_option("-c,--check", o->checks,
                  "results held against the reference, at least; 0: no check (1)")
      ->check(CLI::Range(0, 1'000'000));
  app->add_option("--window", o->window, "messages under way (bandwidth, bibandwidth) (64)")
      ->check(CLI::Range(1, 1024));
  app->add_option("--buffers", o->buffers,
                  "copies that the calls rotate through; 0: 64 up to 4 KiB, above twice the "
                  "last-level cache (0)")
      ->check(CLI::Range(0, 1 << 20));
  app->add_option("-u,--unalign", o->unaligned, "elements by which buffers are misaligned (0)")
      ->check(CLI::Range(0, 1024));
  app->add_option("-T,--timeout", o->deadline_s,
                  "deadline of an operation in seconds; 0: hocket's default (0)")
      ->check(CLI::Range(0, 2'000'000));
}

void add_output(CLI::App* app, Options* o) {
  add(app, "-C,--report_cputime", set_switch, &o->cpu_time, "1: time the calls, not their end (0)");
  add(app, "-S,--report_timestamps", set_switch, &o->timestamps, "1: date every row (0)");
  add(app, "-I,--per_iter_timing", set_switch, &o->each_iteration,
      "1: least, most, 99th percentile and variation over the iterations (0)");
  app->add_option("-K,--per_iter_skip", o->skipped,
                  "first iterations that these columns leave out (0)")
      ->check(CLI::Range(0, 1'000'000));
  add(app, "-J,--output_file", set_nccl_json, &o->nccl_json_path,
      "write nccl-tests' JSON object; the name ends in .json");
  app->add_flag("-v,--verbose", o->verbose,
                "min, p50, p95, p99, max over the iterations, algorithm and transport");
  app->add_option("--json", o->json_path, "write an array with an object per row");
}

}  // namespace

void add_flags(CLI::App* app, Options* o, Pending* pending) {
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as getopt
  add_sizes(app, o);
  add_counts(app, o);
  add(app, "-d,--datatype", set_dtypes, &o->dtypes, "or all (float)");
  add(app, "-o,--op", set_ops, &o->ops, "or all (sum)");
  add(app, "-r,--root", set_root, &o->root, "the root of a rooted collective, or all (0)")
      ->each([pending](const std::string&) { pending->root = true; });
  add(app, "-z,--blocking", set_blocking, &pending->blocking,
      "0: calls on a host stream; 1: in the caller's thread, a barrier after each; 2: in the "
      "caller's thread; 3: a barrier after each iteration, not timed (0)");
  add(app, "-y,--stream_null", set_switch, &pending->null_stream,
      "1: the NULL stream, which is the caller's thread (0)");
  add(app, "-a,--average", set_average, &o->average,
      "0: rank 0's time, 1: mean, 2: least, 3: most (1)")
      ->each([pending](const std::string&) { pending->average = true; });
  add(app, "-R,--local_register", set_registered, &o->registered,
      "1: give the buffers to hocketCommRegister (0)");
  app->add_flag("--barrier", pending->barrier, "time each iteration alone, a barrier before it");
  app->add_flag("--aligned", pending->aligned,
                "from the last rank's start to the last rank's end, on a common clock");
  app->add_flag("--overlap", pending->overlap,
                "how much of the operation hides behind computation, on a host stream");
  app->add_flag("--explain", o->explain,
                "the time of every algorithm that can run the call, beside its predicted time");
  app->add_option("--seconds", o->explain_seconds, "--explain: for a size, if -n allows (1)")
      ->check(CLI::Range(0.0, 1e6));
  add_output(app, o);
  add(app, "--memory", set_memory, &o->alloc_memory,
      "plain: malloc'ed; alloc: hocketMemAlloc'ed (plain)");
  app->add_option("--seed", o->seed, "of the random data (1)");
  add_foreign(app);
}

}  // namespace hocket::perf
