#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <sstream>

#include "data.h"

namespace hocket::perf {
namespace {

constexpr const char* names[collective_count] = {"all_reduce", "all_gather", "reduce_scatter",
                                                 "broadcast", "sendrecv"};

std::optional<Collective> collective_from(const std::string& text) {
  for (int i = 0; i < collective_count; ++i) {
    if (text == names[i] || text == std::string(names[i]) + "_perf") return Collective(i);
  }
  return std::nullopt;
}

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
  for (int i = 0; i < hocketNumTypes; ++i) {
    const auto dtype = static_cast<hocketDataType_t>(i);
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
  for (int i = 0; i < hocketNumOps; ++i) {
    const auto op = static_cast<hocketRedOp_t>(i);
    if (text == "all" || text == name_of(op)) ops->push_back(op);
    known += std::string(name_of(op)) + ", ";
  }
  if (!ops->empty()) return {};
  return fmt::format("'{}' is no operator; known are {}all", text, known);
}

/// CLI11 calls it with the flag's words; an error text makes the parse fail and names the flag.
CLI::callback_t into_size(const char* flag, std::size_t* bytes) {
  return [flag, bytes](const CLI::results_t& words) {
    const auto parsed = parse_size(words.at(0));
    if (!parsed) {
      throw CLI::ValidationError(
          flag,
          fmt::format("'{}' is no size; give bytes, or a number with K, M or G", words.at(0)));
    }
    *bytes = *parsed;
    return true;
  };
}

template <typename Set, typename List>
CLI::callback_t into_list(const char* flag, Set set, List* list) {
  return [flag, set, list](const CLI::results_t& words) {
    const std::string problem = set(words.at(0), list);
    if (!problem.empty()) throw CLI::ValidationError(flag, problem);
    return true;
  };
}

struct Foreign {
  const char* flags;
  const char* why;
  bool one_is_fine = false;
};
/// Flags of nccl-tests that mean nothing here: refused with the reason, never ignored.
constexpr Foreign foreign[] = {
    {"-t,--nthreads", "a rank is a process with one thread; start ranks with hocket-run -n", true},
    {"-g,--ngpus", "ranks own CPU memory, no GPUs; start ranks with hocket-run -n", true},
    {"-p,--parallel_init", "every process makes its own rank"},
    {"-y,--stream_null", "there is no CUDA stream; -z 1 is the caller's thread"},
    {"-C,--report_cputime", "calls run on the CPU: their time is their CPU time"},
    {"-G,--cudagraph", "there are no CUDA graphs on CPU memory"},
    {"-R,--local_register", "use --memory alloc"},
    {"-x,--cta_policy", "there are no CTAs on a CPU"},
    {"-D,--device_implementation", "there is no device code"},
    {"-V,--device_cta_count", "there are no CTAs on a CPU"},
};

void add_flags(CLI::App* app, Options* o) {
  app->add_option("-b,--minbytes", into_size("-b", &o->min_bytes), "smallest size (32M)")
      ->expected(1);
  app->add_option("-e,--maxbytes", into_size("-e", &o->max_bytes), "largest size (32M)")
      ->expected(1);
  auto* step = app->add_option("-i,--stepbytes", into_size("-i", &o->step_bytes),
                               "add so much from size to size (1M)");
  step->expected(1);
  app->add_option("-f,--stepfactor", o->step_factor, "multiply by so much from size to size")
      ->check(CLI::Range(2, 1 << 20))
      ->excludes(step);
  app->add_option("-n,--iters", o->iterations, "timed iterations (20)")
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("-w,--warmup_iters", o->warmup_iterations, "iterations before the timer (1)")
      ->check(CLI::Range(0, 1'000'000));
  app->add_option("-m,--agg_iters", o->aggregated, "operations fused in one group (1)")
      ->check(CLI::Range(1, 64));
  app->add_option("-N,--run_cycles", o->cycles, "times the table is run (1)")
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("-c,--check", o->checks,
                  "timed iterations held against the reference, at least; 0: no check (1)")
      ->check(CLI::Range(0, 1'000'000));
  app->add_option("-d,--datatype", into_list("-d", set_dtypes, &o->dtypes), "or all (float)")
      ->expected(1);
  app->add_option("-o,--op", into_list("-o", set_ops, &o->ops), "or all (sum)")->expected(1);
  app->add_option("-r,--root", o->root, "broadcast's root; -1: every rank in turn (0)")
      ->check(CLI::Range(-1, 1 << 20));
  app->add_option(
         "-z,--blocking",
         [o](const CLI::results_t& words) {
           o->host_stream = words.at(0) == "0";
           if (words.at(0) == "0" || words.at(0) == "1") return true;
           throw CLI::ValidationError("-z", "1: calls block; 0: calls run on a host stream");
         },
         "1: calls block; 0: they run on a host stream (1)")
      ->expected(1);
  app->add_option("-a,--average", o->average, "0: rank 0's time, 1: mean, 2: least, 3: most (1)")
      ->transform(CLI::CheckedTransformer(std::vector<std::pair<std::string, Average>>{
          {"0", Average::rank0}, {"1", Average::mean}, {"2", Average::min}, {"3", Average::max}}));
  app->add_option("-T,--timeout", o->deadline_s, "deadline of an operation in seconds")
      ->check(CLI::Range(1, 2'000'000));
  app->add_option("-J,--json", o->json_path, "write an array with an object per row");
  app->add_option("-S,--seed", o->seed, "of the random data (1)");
}

}  // namespace

const char* name_of(Collective collective) { return names[static_cast<int>(collective)]; }

std::vector<std::size_t> Options::sizes() const {
  std::vector<std::size_t> all;
  for (std::size_t bytes = min_bytes; bytes <= max_bytes;) {
    all.push_back(bytes);
    std::size_t next;
    const bool overflow = step_factor > 1
                              ? __builtin_mul_overflow(bytes, std::size_t(step_factor), &next)
                              : __builtin_add_overflow(bytes, step_bytes, &next);
    if (overflow || next <= bytes) break;  // 0 times a factor, or a step of 0: one size
    bytes = next;
  }
  return all;
}

std::optional<std::size_t> parse_size(const std::string& text) {
  std::size_t used = 0;
  double number = 0;
  if (text.empty() || text.find_first_not_of("0123456789.") == 0) return std::nullopt;
  std::istringstream stream(text);
  stream >> number;
  if (stream.fail()) return std::nullopt;
  used = stream.eof() ? text.size() : static_cast<std::size_t>(stream.tellg());
  std::string unit = text.substr(used);
  for (const char* tail : {"iB", "B"}) {
    const std::string end = tail;
    if (unit.size() > end.size() && unit.substr(unit.size() - end.size()) == end) {
      unit.resize(unit.size() - end.size());
      break;
    }
  }
  const std::string units = "KMGT";
  double factor = 1;
  if (!unit.empty()) {
    const auto at =
        unit.size() == 1 ? units.find(static_cast<char>(std::toupper(unit[0]))) : std::string::npos;
    if (at == std::string::npos) return std::nullopt;
    factor = std::ldexp(1.0, 10 * (static_cast<int>(at) + 1));
  }
  const double bytes = number * factor;
  if (bytes != std::floor(bytes) || bytes > std::ldexp(1.0, 50)) return std::nullopt;
  return static_cast<std::size_t>(bytes);
}

std::optional<int> parse_options(int argc, char** argv, Options* options, std::string* text) {
  const std::string program = argv[0];
  const std::string name = program.substr(program.rfind('/') + 1);
  const auto by_name = collective_from(name);
  CLI::App app{
      "Times and checks a collective over the ranks that a launcher started, as in\n"
      "  hocket-run -n 4 hocket-perf all_reduce -b 8 -e 64M -f 2",
      name};
  std::string collective, memory = "plain";
  if (!by_name) {
    app.add_option("collective", collective, "all_reduce, all_gather, reduce_scatter, ...")
        ->required()
        ->check(CLI::IsMember(std::vector<std::string>(names, names + collective_count)));
  }
  add_flags(&app, options);
  app.add_option("--memory", memory, "plain: malloc'ed; alloc: hocketMemAlloc'ed (plain)")
      ->check(CLI::IsMember({"plain", "alloc"}));
  for (const Foreign& flag : foreign) {
    app.add_option(flag.flags,
                   [flag](const CLI::results_t& words) -> bool {
                     if (flag.one_is_fine && words.at(0) == "1") return true;
                     throw CLI::ValidationError(flag.flags, flag.why);
                   })
        ->expected(1)
        ->group("");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    std::ostringstream out, err;
    const int status = app.exit(problem, out, err);
    *text = status == 0 ? out.str() : fmt::format("{}: {}", name, out.str() + err.str());
    return status == 0 ? 0 : 2;
  }
  options->collective = by_name ? *by_name : *collective_from(collective);
  options->alloc_memory = memory == "alloc";
  if (options->min_bytes > options->max_bytes) {
    *text = fmt::format("{}: -b {} is above -e {}\n", name, options->min_bytes, options->max_bytes);
    return 2;
  }
  if (options->collective != Collective::broadcast && options->root != 0) {
    *text = fmt::format("{}: -r is for broadcast; {} has no root\n", name,
                        name_of(options->collective));
    return 2;
  }
  return std::nullopt;
}

}  // namespace hocket::perf
