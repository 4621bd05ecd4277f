#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "data.h"
#include "flags.h"

namespace hocket::perf {
namespace {

constexpr const char* names[collective_count] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",    "gather",     "scatter",
    "alltoall",   "sendrecv",   "barrier",        "latency",   "bandwidth", "bibandwidth"};
constexpr std::size_t window_bytes = std::size_t{256} << 20;  // of receive buffers, at most

struct Program {
  std::string name;
  Collective collective;
  bool varying;
};

std::vector<Program> all_programs() {
  std::vector<Program> all;
  for (const bool varying : {false, true}) {
    for (int i = 0; i < collective_count; ++i) {
      const auto collective = static_cast<Collective>(i);
      if (varying && !has_parts(collective)) continue;
      all.push_back({name_of(collective, varying), collective, varying});
    }
  }
  all.push_back({"alltoallv", Collective::alltoall, true});  // nccl-tests' name of alltoall_v
  return all;
}

/// The program that is called by the name, with or without "_perf". Null: none is.
const Program* program_from(const std::string& text, const std::vector<Program>& all) {
  const auto found = std::ranges::find_if(all, [&](const Program& program) {
    return text == program.name || text == program.name + "_perf";
  });
  return found == all.end() ? nullptr : &*found;
}

/// Sets the method from the flags. Returns an error text if they conflict.
std::string choose_method(const Pending& pending, Options* o) {
  const bool barrier_outside = pending.blocking == 3;
  if (pending.barrier + pending.aligned + pending.overlap + barrier_outside > 1) {
    return "--barrier (or -z 3), --aligned and --overlap exclude one another";
  }
  if (pending.barrier || barrier_outside) o->method = Method::barrier;
  if (pending.aligned) o->method = Method::aligned;
  if (pending.overlap) o->method = Method::overlap;
  const bool own_timing = is_pair(o->collective);
  if (own_timing && o->method != Method::back_to_back) {
    return fmt::format("{} has a method of its own: no --barrier, -z 3, --aligned or --overlap",
                       o->name());
  }
  if (own_timing && o->aggregated > 1) {
    return fmt::format("-m is for collectives; {} has --window", o->name());
  }
  if (o->method == Method::overlap && (pending.blocking.value_or(0) != 0 || pending.null_stream)) {
    return "--overlap needs a host stream: no -z 1, 2 or 3, no -y 1";
  }
  if (o->method != Method::back_to_back && pending.blocking == 1) {
    return "-z 1 has a barrier in the timed interval, --barrier and --aligned have it before";
  }
  // The OSU micro-benchmarks, which these methods follow, make blocking calls.
  const int usual =
      o->method == Method::overlap || (o->method == Method::back_to_back && !own_timing) ? 0 : 2;
  int blocking = pending.blocking.value_or(usual);
  if (barrier_outside || (pending.null_stream && blocking == 0)) blocking = 2;
  o->blocking = static_cast<Blocking>(blocking);
  return {};
}

/// --explain has one way to measure.
std::string check_explain(const Pending& pending, Options* o) {
  if (!o->explain) return {};
  if (o->collective == Collective::sendrecv || is_pair(o->collective)) {
    return fmt::format("--explain compares algorithms: {} has no choice of algorithms", o->name());
  }
  const bool known = !o->varying || o->collective == Collective::all_gather ||
                     o->collective == Collective::reduce_scatter;
  if (!known) {
    return fmt::format(
        "--explain compares prices: {} has none, because a rank knows only the blocks that it "
        "sends or receives; the ranks and their nodes decide which algorithm runs",
        o->name());
  }
  if (pending.barrier || pending.aligned || pending.overlap || pending.blocking ||
      pending.average) {
    return "--explain has a method of its own: no --barrier, --aligned, --overlap, -z or -a";
  }
  if (std::ranges::find(o->ops, mul_sum) != o->ops.end()) {
    return "--explain has no mulsum, which belongs to one communicator: it takes as long as sum";
  }
  if (pending.root) return "--explain takes every rank as the root in turn: no -r";
  if (o->aggregated > 1 || o->cycles != 1 || o->cpu_time || o->times_each() ||
      !o->nccl_json_path.empty()) {
    return "--explain has a table of its own: no -m, -N, -C, -I, -v or -J";
  }
  o->blocking = Blocking::wait;
  return {};
}

std::string check_combination(const Pending& pending, const Options& o) {
  if (o.min_bytes > o.max_bytes) {
    return fmt::format("-b {} is above -e {}", o.min_bytes, o.max_bytes);
  }
  if (!has_root(o.collective) && o.root != 0) {
    return fmt::format("-r is for collectives with a root; {} has none", o.name());
  }
  const auto computes_any = [&](hocketDataType_t dtype) {
    return std::ranges::any_of(o.ops, [&](hocketRedOp_t op) { return computes(op, dtype); });
  };
  if (o.reduces() && std::ranges::none_of(o.dtypes, computes_any)) {
    return fmt::format("-o {} is bitwise: -d must be an integer type", name_of(o.ops[0]));
  }
  if (o.method == Method::aligned && pending.average) {
    return "--aligned has one time for all ranks: -a has nothing to choose from";
  }
  if (o.cpu_time && o.method != Method::back_to_back) {
    return "-C needs the back-to-back method";
  }
  if (o.cycles == 0 && !(o.json_path.empty() && o.nccl_json_path.empty())) {
    return "--json and -J are written at the end, which -N 0 does not have";
  }
  if (o.skipped >= o.iterations) {
    return fmt::format("-K {} leaves none of {} iterations", o.skipped, o.iterations);
  }
  return {};
}

/// The environment variables of nccl-tests.
std::string read_environment(Options* o) {
  for (const char* name : {"NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK"}) {
    if (std::getenv(name) != nullptr) {
      return fmt::format("{} is set: hocket-perf measures all ranks together; unset it", name);
    }
  }
  const char* least = std::getenv("NCCL_TESTS_MIN_BW");
  if (least == nullptr) return {};
  double value = 0;
  if (!CLI::detail::lexical_cast(std::string(least), value)) {
    return fmt::format("NCCL_TESTS_MIN_BW: '{}' is no number of GB/s", least);
  }
  o->min_bus_bandwidth = value;
  return {};
}

}  // namespace

std::string name_of(Collective collective, bool varying) {
  return names[static_cast<int>(collective)] + std::string(varying ? "_v" : "");
}

const char* name_of(Method method) {
  static const char* const method_names[] = {"back-to-back", "barrier", "aligned", "overlap"};
  return method_names[static_cast<int>(method)];
}

const char* Options::redop_name(hocketRedOp_t op) const { return reduces() ? name_of(op) : "none"; }

const char* Options::dtype_name(hocketDataType_t dtype) const {
  return has_data() ? name_of(dtype) : "none";
}

int Options::group_of(std::size_t bytes) const {
  if (collective != Collective::bandwidth && collective != Collective::bibandwidth) {
    return aggregated;
  }
  const std::size_t most = window_bytes / std::max<std::size_t>(bytes, 1);
  return static_cast<int>(std::clamp<std::size_t>(most, 1, static_cast<std::size_t>(window)));
}

std::vector<std::size_t> Options::sizes() const {
  if (!has_data()) return {0};
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
  const std::vector<Program> all = all_programs();
  const Program* chosen = program_from(name, all);
  CLI::App app{
      "Times and checks a collective, a barrier or messages over the ranks that a launcher\n"
      "started, as in\n"
      "  hocket-run -n 4 hocket-perf all_reduce -b 8 -e 64M -f 2\n"
      "  hocket-run -n 4 hocket-perf all_reduce -b 8 -e 4K -f 2 -n 1000    (small sizes)",
      name};
  std::string collective;
  if (chosen == nullptr) {
    std::vector<std::string> known;
    for (const Program& program : all) known.push_back(program.name);
    app.add_option("collective", collective,
                   "what is measured; _v: with blocks of three halves and of one half in turn")
        ->required()
        ->check(CLI::IsMember(known));
  }
  Pending pending;
  add_flags(&app, options, &pending);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    std::ostringstream out, err;
    const int status = app.exit(problem, out, err);
    *text = status == 0 ? out.str() : fmt::format("{}: {}", name, out.str() + err.str());
    return status == 0 ? 0 : 2;
  }
  if (chosen == nullptr) chosen = program_from(collective, all);
  options->collective = chosen->collective;
  options->varying = chosen->varying;
  std::string problem = choose_method(pending, options);
  if (problem.empty()) problem = check_combination(pending, *options);
  if (problem.empty()) problem = check_explain(pending, options);
  if (problem.empty()) problem = read_environment(options);
  if (problem.empty()) return std::nullopt;
  *text = fmt::format("{}: {}\n", name, problem);
  return 2;
}

}  // namespace hocket::perf
