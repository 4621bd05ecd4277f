#include "explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "clock.h"
#include "collectives/algorithms/builders.h"
#include "data.h"
#include "engine/plan_files.h"

namespace hocket::perf {
namespace {

namespace inside = hocket::internal;

// A turn is so long that two clock reads and the end of the barrier do not matter, if it has not
// too many calls.
constexpr double turn_us = 300;
constexpr int least_turns = 5;
constexpr int communicators = 3;  // of each algorithm
constexpr const char* setting = "HOCKET_ALGORITHM";

inside::Collective inside_name(Collective collective) {
  using enum inside::Collective;
  constexpr std::array of = {all_reduce, all_gather, reduce_scatter, broadcast,
                             reduce,     gather,     scatter,        all_to_all};
  const auto index = static_cast<std::size_t>(collective);
  return index < of.size() ? of[index] : barrier;
}

bool serves(const inside::Builder& builder, const Options& options, const Job& job) {
  if (builder.collective != inside_name(options.collective)) return false;
  if (builder.medium == inside::Medium::node) return job.nodes() == 1;
  if (builder.medium == inside::Medium::both) return 1 < job.nodes() && job.nodes() < job.ranks();
  return true;
}

/// The algorithm and the transport of the last collective.
bool last_of(hocketComm_t comm, Candidate* candidate, Failure* failure) {
  const char *algorithm = "", *transport = "";
  if (!ok(hocketCommLastAlgorithm(comm, &algorithm, &transport), "hocketCommLastAlgorithm", comm,
          failure)) {
    return false;
  }
  candidate->algorithm = algorithm;
  candidate->transport = transport;
  return true;
}

}  // namespace

Explainer::Explainer(const Options& options, const Job& job)
    : options_(options), job_(job), runner_(options, job.comm(), [](int, int) {}) {}

Explainer::~Explainer() {
  for (const Forced& forced : forced_) {
    for (hocketComm_t comm : forced.comms) (void)hocketCommDestroy(comm);
  }
}

bool Explainer::prepare(Failure* failure) {
  std::vector<std::string> all;
  if (!runner_.prepare(failure) || !names(&all, failure)) return false;
  return std::ranges::all_of(
      all, [&](const std::string& algorithm) { return force(algorithm, failure); });
}

void Explainer::print(const std::string& text) const {
  if (job_.rank() != 0) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

bool Explainer::run(Failure* failure) {
  print(explain_header(options_, job_.ranks(), job_.nodes()));
  const std::vector<hocketRedOp_t> ops =
      options_.reduces() ? options_.ops : std::vector<hocketRedOp_t>{hocketSum};
  for (const hocketDataType_t dtype : options_.dtypes) {
    for (const hocketRedOp_t op : ops) {
      if (!computes(op, dtype)) continue;
      for (const std::size_t bytes : options_.sizes()) {
        if (!measure({bytes, dtype, op}, &points_.emplace_back(), failure)) return false;
        print(explain_lines(options_, points_.back()));
      }
    }
  }
  print(explain_footer(judge(points_)));
  return true;
}

/// The algorithms of the library and the plans of HOCKET_PLAN_FILES that may serve the collective.
bool Explainer::names(std::vector<std::string>* found, Failure* failure) const {
  for (const inside::Builder& builder : inside::builders()) {
    const std::string name = builder.algorithm;
    if (serves(builder, options_, job_) && std::ranges::find(*found, name) == found->end()) {
      found->push_back(name);
    }
  }
  const char* paths = std::getenv("HOCKET_PLAN_FILES");
  if (paths == nullptr) return true;
  std::vector<inside::PlanFile> plans;
  if (const inside::Status read = inside::read_plan_files(paths, &plans); !read.ok()) {
    failure->sentence = "HOCKET_PLAN_FILES: " + read.message();
    return false;
  }
  for (const inside::PlanFile& plan : plans) {
    if (plan.collective == inside_name(options_.collective)) found->push_back(plan.name);
  }
  return true;
}

/// A communicator reads the setting when it is made.
bool Explainer::force(const std::string& algorithm, Failure* failure) {
  const char* const given = std::getenv(setting);
  const std::string before = given != nullptr ? given : "";
  ::setenv(setting, algorithm.c_str(), 1);
  forced_.push_back({algorithm, {}});
  Forced& forced = forced_.back();
  bool made = true;
  while (made && forced.comms.size() < communicators) {
    hocketComm_t comm = nullptr;
    made = ok(hocketCommDuplicate(job_.comm(), &comm, nullptr), "hocketCommDuplicate", job_.comm(),
              failure);
    if (made) forced.comms.push_back(comm);
  }
  ::setenv(setting, before.c_str(), 1);
  if (given == nullptr) ::unsetenv(setting);
  return made;
}

/// The root moves on from call to call.
std::vector<Operation> Explainer::operations(const RowSpec& spec, hocketComm_t comm) {
  std::vector<Operation> all;
  RowSpec each = spec;
  for (each.root = 0; each.root < (has_root(options_.collective) ? job_.ranks() : 1); ++each.root) {
    all.push_back(runner_.operation_for(each, comm, each.op));
  }
  return all;
}

/// Runs the call once for each root, and asks for its price and its algorithm. A rank that first
/// accesses a page of a peer's mapped buffer has a page fault: all mapped buffers are used once
/// with each root; once for all communicators, because they share the mappings of the process.
bool Explainer::try_out(const RowSpec& spec, hocketComm_t comm, Turn* turn, Failure* failure) {
  const bool is_first = turn->operations.empty();  // of the communicators of this algorithm
  std::vector<Operation>& of_roots = turn->operations.emplace_back(operations(spec, comm));
  const std::size_t slots = of_roots.front().slots().in;
  const std::size_t buffers = options_.alloc_memory && is_first ? slots : 1;
  for (Operation& operation : of_roots) {
    // Twice at least: the first call may find that buffers are not mapped.
    for (std::size_t i = 0; i < std::max(buffers, std::size_t{2}); ++i) {
      if (!operation.iterate(i, failure)) return false;
    }
  }
  if (!last_of(comm, &turn->candidate, failure) ||
      !ok(hocketGroupStart(), "hocketGroupStart", comm, failure) ||
      !of_roots.front().iterate(0, failure)) {
    return false;
  }
  hocketSimInfo_t info = HOCKET_SIM_INFO_INITIALIZER;
  if (!ok(hocketGroupSimulateEnd(&info), "hocketGroupSimulateEnd", comm, failure)) return false;
  turn->candidate.predicted_us = info.estimatedTime;
  return true;
}

bool Explainer::measure(const RowSpec& spec, Point* point, Failure* failure) {
  runner_.operation_for(spec, job_.comm(), spec.op).fill();
  Turn unforced;
  if (!try_out(spec, job_.comm(), &unforced, failure)) return false;
  std::vector<Turn> turns;
  for (const Forced& forced : forced_) {
    Turn turn;
    for (hocketComm_t comm : forced.comms) {
      if (!try_out(spec, comm, &turn, failure)) return false;
    }
    if (turn.candidate.algorithm != forced.algorithm) continue;  // it cannot run this call
    turn.candidate.chosen = forced.algorithm == unforced.candidate.algorithm;
    turns.push_back(std::move(turn));
  }
  const Expectation& e = unforced.operations.front().front().expectation();
  point->bytes = e.whole_count() * size_of(e.dtype);
  point->count = e.count;
  point->dtype = spec.dtype;
  point->op = spec.op;
  const auto chosen = std::ranges::find_if(turns, [](const Turn& t) { return t.candidate.chosen; });
  if (chosen == turns.end()) {
    failure->sentence = fmt::format("{} was chosen at {} bytes, but cannot be forced",
                                    unforced.candidate.algorithm, point->bytes);
    return false;
  }
  std::size_t calls = 1;
  return choose_calls(&*chosen, &calls, failure) && take_turns(&turns, calls, failure) &&
         conclude(turns, point, failure);
}

/// How many calls a turn has: enough for its length, by the chosen algorithm, and all roots.
bool Explainer::choose_calls(Turn* chosen, std::size_t* calls, Failure* failure) {
  const std::size_t roots = chosen->operations.front().size();
  for (std::size_t tried : {roots, 4 * roots}) {
    if (!time(chosen, tried, failure)) return false;
    const double enough = turn_us / std::max(chosen->times_us.back(), 0.01);
    *calls =
        static_cast<std::size_t>(std::clamp(enough, 1.0, static_cast<double>(most_calls_of_turn)));
    if (*calls > 1) *calls = (*calls + roots - 1) / roots * roots;
    chosen->times_us.clear();
    if (!from_rank_0(calls, sizeof *calls, failure)) return false;
    if (*calls == 1) break;
  }
  return true;
}

bool Explainer::take_turns(std::vector<Turn>* turns, std::size_t calls, Failure* failure) {
  const double start = now_us();
  for (int done = 0; done < options_.iterations; ++done) {
    for (std::size_t i = 0; i < turns->size(); ++i) {
      // Every second time in reverse, so that an algorithm does not always follow the same one.
      const std::size_t next = done % 2 == 0 ? i : turns->size() - 1 - i;
      Turn& turn = (*turns)[(next + static_cast<std::size_t>(done)) % turns->size()];
      if (!time(&turn, calls, failure)) return false;
    }
    unsigned char over =
        done + 1 >= least_turns && now_us() - start > options_.explain_seconds * 1e6;
    if (!from_rank_0(&over, 1, failure)) return false;
    if (over != 0) break;
  }
  return true;
}

bool Explainer::time(Turn* turn, std::size_t calls, Failure* failure) {
  const std::size_t first = turn->times_us.size() * calls;  // of the algorithm: for the root
  std::vector<Operation>& of_roots =
      turn->operations[turn->times_us.size() % turn->operations.size()];
  double barriers_us = 0, us = 0;
  const bool apart = has_root(options_.collective);
  const auto run = [&](bool with_calls, double* took_us) {
    if (!barrier(failure)) return false;
    const double start = now_us();
    for (std::size_t k = first; k < first + calls; ++k) {
      Operation& operation = of_roots[k % of_roots.size()];
      if (with_calls && !operation.iterate(buffers_used_++, failure)) return false;
      if (apart && !barrier(failure)) return false;
    }
    *took_us = (now_us() - start) / static_cast<double>(calls);
    return true;
  };
  if ((apart && !run(false, &barriers_us)) || !run(true, &us)) return false;
  turn->times_us.push_back(std::max(us - barriers_us, 0.01));
  return true;
}

bool Explainer::barrier(Failure* failure) {
  return ok(hocketBarrier(job_.comm(), nullptr), "hocketBarrier", job_.comm(), failure);
}

bool Explainer::from_rank_0(void* value, std::size_t bytes, Failure* failure) {
  return ok(hocketBroadcast(value, value, bytes, hocketUint8, 0, job_.comm(), nullptr),
            "hocketBroadcast", job_.comm(), failure);
}

/// The slowest rank's times count: a price is the time until the last rank has ended.
bool Explainer::conclude(const std::vector<Turn>& turns, Point* point, Failure* failure) {
  for (const Turn& turn : turns) {
    const std::size_t count = turn.times_us.size();
    std::vector<double> slowest(count);
    if (!ok(hocketAllReduce(turn.times_us.data(), slowest.data(), count, hocketFloat64, hocketMax,
                            job_.comm(), nullptr),
            "hocketAllReduce of the times", job_.comm(), failure)) {
      return false;
    }
    Candidate& candidate = point->candidates.emplace_back(turn.candidate);
    candidate.measured_us = summarise(slowest).p50;
  }
  std::ranges::stable_sort(point->candidates, {}, &Candidate::measured_us);
  return true;
}

}  // namespace hocket::perf
