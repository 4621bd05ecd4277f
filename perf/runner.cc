#include "runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hocket::perf {
namespace {

// A check generates the inputs of all ranks again. If that takes more bytes per row than this, only
// some results are checked against the reference (all results are compared between ranks).
constexpr std::size_t check_budget_bytes = std::size_t{256} << 20;
constexpr std::size_t longest_unaligned_bytes = 1024 * 8;

double bus_factor(Collective collective, int ranks) {
  switch (collective) {
    case Collective::all_reduce:
      return 2.0 * (ranks - 1) / ranks;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::alltoall:
      return 1.0 * (ranks - 1) / ranks;
    default:
      return 1.0;
  }
}

/// Number of messages that travel at the same time: pairs times directions.
double flows(Collective collective, int ranks) {
  if (!is_pair(collective) || collective == Collective::latency) return 1;
  return (collective == Collective::bibandwidth ? 2.0 : 1.0) * ranks / 2;
}

ByRank part(const std::vector<std::uint64_t>& all, std::size_t ranks, std::size_t from,
            std::size_t count) {
  ByRank result(ranks, std::vector<double>(count));
  if (count == 0) return result;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::memcpy(result[r].data(), all.data() + r * (all.size() / ranks) + from,
                count * sizeof(double));
  }
  return result;
}

/// The operator of a row, which mulsum has to make. It ends with this object.
class RowOperator {
 public:
  explicit RowOperator(hocketComm_t comm) : comm_(comm) {}
  ~RowOperator() {
    if (made_) (void)hocketRedOpDestroy(op_, comm_);
  }
  RowOperator(const RowOperator&) = delete;
  RowOperator& operator=(const RowOperator&) = delete;

  bool make(const RowSpec& spec, int rank, Failure* failure) {
    op_ = spec.op;
    if (spec.op != mul_sum) return true;
    std::uint64_t scalar = 0;
    write_factor(mul_sum_factor(rank), spec.dtype, &scalar);
    made_ =
        ok(hocketRedOpCreatePreMulSum(&op_, &scalar, spec.dtype, hocketScalarHostImmediate, comm_),
           "hocketRedOpCreatePreMulSum", comm_, failure);
    return made_;
  }
  hocketRedOp_t get() const { return op_; }

 private:
  hocketComm_t comm_;
  hocketRedOp_t op_ = hocketSum;
  bool made_ = false;
};

}  // namespace

Runner::Runner(const Options& options, hocketComm_t comm, Progress progress)
    : options_(options), progress_(std::move(progress)), cache_bytes_(cache_bytes()) {
  ground_.comm = comm;
}

Runner::~Runner() {
  for (hocketEvent_t event : events_) (void)hocketEventDestroy(event);
  if (ground_.stream != nullptr) (void)hocketStreamDestroy(ground_.stream);
  for (void* handle : registrations_) (void)hocketCommDeregister(ground_.comm, handle);
  for (char* buffer : {ground_.send, ground_.recv}) {
    if (options_.alloc_memory) {
      if (buffer != nullptr) (void)hocketMemFree(buffer);
    } else {
      std::free(buffer);
    }
  }
}

bool Runner::fits_the_ranks(Failure* failure) const {
  if (options_.root >= ranks_) {
    failure->sentence =
        fmt::format("-r {}: there are only ranks 0 to {}", options_.root, ranks_ - 1);
  } else if (is_pair(options_.collective) && ranks_ % 2 != 0) {
    failure->sentence =
        fmt::format("{} needs pairs of ranks, and {} is odd", options_.name(), ranks_);
  }
  return failure->sentence.empty();
}

bool Runner::prepare(Failure* failure) {
  hocketComm_t comm = ground_.comm;
  if (!ok(hocketCommUserRank(comm, &rank_), "hocketCommUserRank", comm, failure) ||
      !ok(hocketCommCount(comm, &ranks_), "hocketCommCount", comm, failure) ||
      !ok(hocketCommNodeCount(comm, &nodes_), "hocketCommNodeCount", comm, failure) ||
      !fits_the_ranks(failure)) {
    return false;
  }
  if (options_.needs_stream() &&
      !ok(hocketStreamCreate(&ground_.stream), "hocketStreamCreate", comm, failure)) {
    return false;
  }
  if (ground_.stream != nullptr && options_.times_each() &&
      options_.method == Method::back_to_back) {
    events_.resize(static_cast<std::size_t>(options_.iterations));
    for (hocketEvent_t& event : events_) {
      if (!ok(hocketEventCreate(&event), "hocketEventCreate", comm, failure)) return false;
    }
  }
  if (options_.method == Method::aligned && !clock_.start(comm, failure)) return false;
  return allocate(failure);
}

bool Runner::allocate(Failure* failure) {
  std::size_t in_bytes = 0, out_bytes = 0;
  for (const std::size_t bytes : options_.sizes()) {
    for (const bool in_place : {false, true}) {
      const Slots slots = slots_of(bytes, in_place);
      if (!in_place) in_bytes = std::max(in_bytes, slots.in * stride_of(bytes));
      out_bytes = std::max(out_bytes, slots.out * stride_of(bytes));
    }
  }
  for (const auto& [buffer, wanted] :
       {std::pair{&ground_.send, in_bytes}, std::pair{&ground_.recv, out_bytes}}) {
    const std::size_t bytes = (wanted + longest_unaligned_bytes + 4095) / 4096 * 4096;
    if (options_.alloc_memory) {
      void* memory = nullptr;
      if (!ok(hocketMemAlloc(&memory, bytes), "hocketMemAlloc", ground_.comm, failure)) {
        return false;
      }
      *buffer = static_cast<char*>(memory);
    } else {
      *buffer = static_cast<char*>(std::aligned_alloc(4096, bytes));
    }
    if (*buffer == nullptr) {
      failure->sentence = fmt::format("rank {}: no memory for a buffer of {} bytes", rank_, bytes);
      return false;
    }
    std::fill(*buffer, *buffer + bytes, '\0');  // touch every page before the timing
    if (!options_.registered) continue;
    registrations_.push_back(nullptr);
    if (!ok(hocketCommRegister(ground_.comm, *buffer, bytes, &registrations_.back()),
            "hocketCommRegister", ground_.comm, failure)) {
      registrations_.pop_back();
      return false;
    }
  }
  return true;
}

Slots Runner::slots_of(std::size_t bytes, bool in_place) const {
  const auto group = static_cast<std::size_t>(options_.group_of(bytes));
  // --explain: an iteration is a turn of many calls.
  const std::size_t calls = options_.explain ? most_calls_of_turn : group;
  return slots_for(bytes, stride_of(bytes), static_cast<std::size_t>(options_.iterations) * calls,
                   group, in_place, cache_bytes_, static_cast<std::size_t>(options_.buffers));
}

Operation Runner::operation_for(const RowSpec& spec, hocketComm_t comm, hocketRedOp_t redop) {
  Expectation e;
  e.collective = options_.collective;
  e.varying = options_.varying;
  e.dtype = spec.dtype;
  e.op = spec.op;
  e.root = spec.root;
  e.rank = rank_;
  e.ranks = ranks_;
  e.count = spec.bytes / size_of(spec.dtype);
  if (has_parts(e.collective)) e.count /= static_cast<std::size_t>(ranks_);
  e.seed.run = options_.seed;
  e.seed.row = ++row_number_;
  e.seed.pass = spec.in_place ? 1 : 0;
  Ground ground = ground_;
  ground.comm = comm;
  const std::size_t shift = static_cast<std::size_t>(options_.unaligned) * size_of(spec.dtype);
  ground.send += shift;
  ground.recv += shift;
  ground.redop = redop;
  return Operation(ground, e, spec.in_place, slots_of(spec.bytes, spec.in_place),
                   stride_of(spec.bytes), options_.group_of(spec.bytes));
}

/// At least -c results, at least 2, and as many as the budget allows.
std::size_t Runner::checks_wanted(const Operation& operation) const {
  if (options_.checks == 0) return 0;
  const Expectation& e = operation.expectation();
  const std::size_t inputs = e.has_redop() ? static_cast<std::size_t>(ranks_) : 1;
  const std::size_t cost = std::max<std::size_t>(1, e.output_count() * size_of(e.dtype) * inputs);
  return std::max(
      {std::size_t{2}, check_budget_bytes / cost, static_cast<std::size_t>(options_.checks)});
}

void Runner::check(const Operation& operation, std::size_t k, bool against_reference,
                   Seen* seen) const {
  seen->hashes.push_back(operation.hash(k));
  if (against_reference) seen->wrong += operation.wrong(k);
}

bool Runner::learn_algorithm(Measured* row, Failure* failure) {
  if (options_.collective == Collective::sendrecv || is_pair(options_.collective)) {
    row->algorithm = "messages";
    row->transport = ranks_ == 1 ? "none" : nodes_ == 1 ? "shm" : nodes_ == ranks_ ? "tcp" : "both";
    return true;
  }
  const char *algorithm = "", *transport = "";
  if (!ok(hocketCommLastAlgorithm(ground_.comm, &algorithm, &transport), "hocketCommLastAlgorithm",
          ground_.comm, failure)) {
    return false;
  }
  row->algorithm = algorithm;
  row->transport = transport;
  return true;
}

bool Runner::measure(const RowSpec& spec, Measured* row, Failure* failure) {
  RowOperator redop(ground_.comm);
  if (!redop.make(spec, rank_, failure)) return false;
  Operation operation = operation_for(spec, ground_.comm, redop.get());
  const Expectation& e = operation.expectation();
  Seen seen;
  bool measured = false;
  switch (options_.method) {
    case Method::back_to_back:
      measured = back_to_back(&operation, &seen, row, failure);
      break;
    case Method::barrier:
    case Method::aligned:
      measured = one_by_one(&operation, &seen, row, failure);
      break;
    case Method::overlap:
      measured = overlapped(&operation, &seen, row, failure);
      break;
  }
  ByRank first, second;
  if (!measured || !exchange(operation, &seen, &first, &second, row, failure)) return false;
  row->bytes = e.whole_count() * size_of(e.dtype);
  row->count = e.count;
  row->dtype = spec.dtype;
  row->op = spec.op;
  row->root = has_root(e.collective) ? spec.root : -1;
  row->in_place = spec.in_place;
  row->group = static_cast<int>(operation.group());
  conclude(operation, first, second, row);
  return true;
}

/// Gives the measurements of all ranks to every rank.
bool Runner::exchange(const Operation& operation, Seen* seen, ByRank* first, ByRank* second,
                      Measured* row, Failure* failure) {
  const std::size_t nf = seen->first.size(), ns = seen->second.size(), nh = seen->hashes.size();
  const std::size_t words = 2 + nf + ns + nh;
  const auto ranks = static_cast<std::size_t>(ranks_);
  std::vector<std::uint64_t> mine{static_cast<std::uint64_t>(rank_), seen->wrong};
  mine.resize(words);
  if (nf > 0) std::memcpy(mine.data() + 2, seen->first.data(), nf * sizeof(double));
  if (ns > 0) std::memcpy(mine.data() + 2 + nf, seen->second.data(), ns * sizeof(double));
  std::copy(seen->hashes.begin(), seen->hashes.end(),
            mine.begin() + 2 + static_cast<std::ptrdiff_t>(nf + ns));
  std::vector<std::uint64_t> all(words * ranks);
  if (!ok(hocketAllGather(mine.data(), all.data(), words, hocketUint64, ground_.comm, nullptr),
          "hocketAllGather of the results", ground_.comm, failure)) {
    return false;
  }
  row->wrong = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::uint64_t* theirs = all.data() + r * words;
    if (theirs[0] != r) {
      failure->sentence = fmt::format(
          "rank {}: the results of rank {} did not arrive: hocketAllGather itself is wrong", rank_,
          r);
      return false;
    }
    if (options_.checks == 0) continue;
    row->wrong += theirs[1];
    if (!operation.expectation().same_on_all_ranks()) continue;
    for (std::size_t i = words - nh; i < words; ++i) {
      if (theirs[i] == all[i]) continue;
      ++row->wrong;
      if (row->remarks.empty()) {
        row->remarks.push_back(
            fmt::format("ranks 0 and {} hold different bytes in result {}", r, i - (words - nh)));
      }
    }
  }
  *first = part(all, ranks, 2, nf);
  *second = part(all, ranks, 2 + nf, ns);
  return true;
}

void Runner::conclude_each(const Operation& operation, std::vector<double> times_us,
                           Measured* row) const {
  const auto skipped = std::min(static_cast<std::size_t>(options_.skipped), times_us.size() - 1);
  times_us.erase(times_us.begin(), times_us.begin() + static_cast<std::ptrdiff_t>(skipped));
  for (double& time_us : times_us) time_us /= static_cast<double>(operation.group());
  row->each = summarise(std::move(times_us));
}

void Runner::conclude(const Operation& operation, const ByRank& first, const ByRank& second,
                      Measured* row) const {
  const Collective collective = options_.collective;
  const auto group = static_cast<double>(operation.group());
  // In a pair, the rank that sends first measures the time.
  const auto timing = static_cast<std::size_t>(is_pair(collective) ? ranks_ / 2 : ranks_);
  switch (options_.method) {
    case Method::back_to_back: {
      const double operations = options_.iterations * group;
      const std::vector<double> sums = average_ranks(first, timing, options_.average);
      row->time_us = sums[0] / operations;
      row->shown_us = options_.cpu_time ? sums[1] / operations : row->time_us;
      const std::vector<double> each = average_ranks(second, timing, options_.average);
      if (!each.empty()) conclude_each(operation, each, row);
      break;
    }
    case Method::barrier: {
      const std::vector<double> times = average_ranks(first, timing, options_.average);
      row->time_us = row->shown_us = summarise(times).mean / group;
      conclude_each(operation, times, row);
      break;
    }
    case Method::aligned: {
      const Aligned aligned = align(first, second);
      row->time_us = row->shown_us = summarise(aligned.time_us).mean / group;
      row->skew_us = summarise(aligned.skew_us).mean;
      row->uncertainty_us = clock_.uncertainty_us();
      conclude_each(operation, aligned.time_us, row);
      if (row->uncertainty_us / group > row->time_us) {
        row->remarks.push_back(
            fmt::format("the hosts' clocks are known to {:.1f} us only, more than this row's time: "
                        "the row says nothing",
                        row->uncertainty_us));
      }
      break;
    }
    case Method::overlap: {
      const std::vector<double> parts = average_ranks(first, timing, options_.average);
      row->overlap = {parts[0], parts[1], parts[2], parts[3], parts[4]};
      row->time_us = row->shown_us = parts[4] / group;
      break;
    }
  }
  if (collective == Collective::latency) {  // half a round trip
    row->time_us /= 2;
    row->shown_us /= 2;
    if (row->each) {
      Summary& s = *row->each;
      for (double* value : {&s.mean, &s.min, &s.p50, &s.p95, &s.p99, &s.max}) *value /= 2;
    }
  }
  const double bytes = static_cast<double>(row->bytes) * flows(collective, ranks_);
  row->algbw_GBps = row->time_us > 0 ? bytes / 1e3 / row->time_us : 0;
  row->busbw_GBps = row->algbw_GBps * bus_factor(collective, ranks_);
}

}  // namespace hocket::perf
