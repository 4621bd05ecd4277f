#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <hocket/training/gradients.hpp>
#include <map>
#include <set>
#include <utility>

#include "training/agreement.h"

namespace hocket::training {
namespace {

constexpr const char* operation = "hocket::training::GradientReducer";

/// Why a parameter's gradient of this rank is not in the result.
enum class Missing : std::uint8_t {
  no = 0,
  absent = 1,  // backward made none
  late = 2,    // backward made one, or one more, after the bucket had been launched
};

std::vector<Parameter> checked(std::vector<Parameter> parameters) {
  std::set<std::string_view> names;
  for (const Parameter& parameter : parameters) {
    if (element_bytes(parameter.dtype) < 2) {
      throw InvalidArgument(
          operation, fmt::format("parameter '{}' has the datatype {}: gradients are float64, "
                                 "float32, float16 or bfloat16",
                                 parameter.name, static_cast<int>(parameter.dtype)));
    }
    if (!names.insert(parameter.name).second) {
      throw InvalidArgument(operation, fmt::format("two parameters have the name '{}': checkpoints "
                                                   "and errors could not tell them apart",
                                                   parameter.name));
    }
  }
  return parameters;
}

Communicator own_communicator(Communicator& comm, const std::vector<Parameter>& parameters) {
  require_same_parameters(comm, parameters);
  return comm.duplicate({.name = "gradients"});
}

[[noreturn]] void throw_missing(const Parameter& parameter, std::size_t further,
                                const std::vector<int>& absent, const std::vector<int>& late,
                                std::size_t ranks) {
  const std::string others =
      further == 0 ? "" : fmt::format(" ({} more parameters have a problem too)", further);
  if (!late.empty()) {
    throw Mismatch(operation,
                   fmt::format("parameter {} received a gradient on {} after its bucket had been "
                               "reduced, because it became ready more often than in the first "
                               "backward{}. Use each parameter as often in every step",
                               describe(parameter), ranks_text(late), others),
                   late.size() == 1 ? late.front() : -1);
  }
  if (absent.size() == ranks) {
    throw Mismatch(
        operation,
        fmt::format("parameter {} received no gradient in this backward on any rank{}: the loss "
                    "does not depend on it. Set find_unused_parameters, or do not train it",
                    describe(parameter), others));
  }
  throw Mismatch(operation,
                 fmt::format("parameter {} received no gradient in this backward on {}, but "
                             "received one on the other ranks{}. Use the same parameters on all "
                             "ranks, or set find_unused_parameters",
                             describe(parameter), ranks_text(absent), others),
                 absent.size() == 1 ? absent.front() : -1);
}

}  // namespace

struct GradientReducer::Body {
  /// What is known of a parameter.
  struct Progress {
    int times = 0;                  // how often it became ready in this backward
    int expected = 1;               // how often it became ready in the first backward
    bool complete = false;          // in this backward: its bucket need not wait for it
    bool unreduced = false;         // its place has a gradient that was not reduced yet
    Missing missing = Missing::no;  // in this backward
  };
  enum class Phase { idle, begun, backward };

  Body(Communicator& comm, std::vector<Parameter> all, const ReducerOptions& given)
      : options(given),
        parameters(checked(std::move(all))),
        layout(parameters, reverse_order(parameters.size()), options.limits),
        communicator(own_communicator(comm, parameters)),
        progress(parameters.size()),
        used(parameters.size(), 1) {
    for (const BucketLayout::ArenaSize& arena : layout.arenas()) {
      arenas.emplace(arena.dtype, Memory<std::byte>(arena.bytes));
    }
    incomplete.resize(layout.buckets().size());
    overlaps = estimated_us() >= options.least_overlap_us;
  }
  /// The time of all buckets one after another; equal on all ranks, as the measured figures are.
  float estimated_us() {
    Group buckets;
    for (const Bucket& bucket : layout.buckets()) reduce(bucket, nullptr);
    return buckets.simulate_end().value_or(0);
  }

  std::byte* address(const Bucket& bucket) {
    return arenas.at(bucket.dtype).data() + bucket.offset;
  }
  std::byte* address(const Bucket& bucket, std::size_t element) {
    return address(bucket) + element * element_bytes(bucket.dtype);
  }
  const Slot& slot(int parameter) const {
    const BucketLayout::Place place = layout.place(parameter);
    return bucket_of(parameter).slots[static_cast<std::size_t>(place.slot)];
  }
  const Bucket& bucket_of(int parameter) const {
    return layout.buckets()[static_cast<std::size_t>(layout.place(parameter).bucket)];
  }
  std::byte* gradient(int parameter) {
    return address(bucket_of(parameter), slot(parameter).begin);
  }
  Progress& of(int parameter) { return progress[static_cast<std::size_t>(parameter)]; }

  void require_alive() const {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  /// Runs something that communicates; its error ends the reducer.
  template <typename Action>
  void communicate(Action action) {
    try {
      action();
    } catch (const Error&) {
      failure = std::current_exception();
      throw;
    }
  }

  // ---- One backward.

  void begin(bool synchronized);
  void ready(int parameter);
  void complete(int parameter);
  void launch_complete_buckets();
  void reduce(const Bucket& bucket, hocketStream_t on);
  void absent(int parameter);
  void settle(int parameter);
  void end();
  void agree_on_status();
  [[noreturn]] void report_missing();

  // ---- The order in which gradients become complete.

  void reorder();

  const ReducerOptions options;
  const std::vector<Parameter> parameters;
  BucketLayout layout;
  std::map<hocketDataType_t, Memory<std::byte>> arenas;
  Communicator communicator;
  Stream stream = Stream::create();  // its destructor waits: it is destroyed before what it uses
  /// Whether the stream reduces buckets while backward computes; else end() reduces them all, in
  /// the calling thread.
  bool overlaps = true;

  std::vector<Progress> progress;       // by parameter
  std::vector<std::uint8_t> used;       // by parameter: by any rank, in the last backward reduced
  std::vector<std::size_t> incomplete;  // by bucket: how many of its parameters are not complete
  std::size_t launched = 0;             // buckets of this backward
  std::vector<int> ready_order;         // of the first backward that is synchronized
  int synchronized_backwards = 0;
  bool reordered = false;
  bool synchronizes = false;
  Phase phase = Phase::idle;
  std::exception_ptr failure;
};

void GradientReducer::Body::begin(bool synchronized) {
  require_alive();
  if (phase == Phase::backward) {
    // Other ranks wait for the buckets of this backward.
    end();
    throw InvalidUsage(operation, "the backward before has not ended: end() was not called");
  }
  if (synchronized && synchronized_backwards > 0 && options.reorder && !reordered) {
    communicate([this] { reorder(); });
  }
  synchronizes = synchronized;
  phase = Phase::begun;
  launched = 0;
  for (std::size_t b = 0; b < incomplete.size(); ++b) {
    incomplete[b] = layout.buckets()[b].slots.size();
  }
  for (Progress& each : progress) {
    each.times = 0;
    each.complete = false;
    each.missing = Missing::no;
  }
}

void GradientReducer::Body::ready(int parameter) {
  require_alive();
  if (phase == Phase::idle) {
    throw InvalidUsage(operation, "begin() must be called before a gradient becomes ready");
  }
  phase = Phase::backward;
  Progress& mine = of(parameter);
  ++mine.times;
  mine.unreduced = true;
  if (!synchronizes) return;
  const auto bucket = static_cast<std::size_t>(layout.place(parameter).bucket);
  if (bucket < launched) {
    mine.missing = Missing::late;
    return;
  }
  if (synchronized_backwards == 0) {
    // How often each parameter becomes ready is not known yet, so nothing is launched before the
    // end.
    if (mine.times == 1) ready_order.push_back(parameter);
    return;
  }
  if (mine.times >= mine.expected) complete(parameter);
}

void GradientReducer::Body::complete(int parameter) {
  Progress& mine = of(parameter);
  if (mine.complete) return;
  mine.complete = true;
  --incomplete[static_cast<std::size_t>(layout.place(parameter).bucket)];
  launch_complete_buckets();
}

void GradientReducer::Body::launch_complete_buckets() {
  while (launched < incomplete.size() && incomplete[launched] == 0) {
    if (overlaps) {
      communicate([this] { reduce(layout.buckets()[launched], stream.get()); });
    }
    ++launched;
  }
}

void GradientReducer::Body::reduce(const Bucket& bucket, hocketStream_t on) {
  std::byte* const data = address(bucket);
  check(hocketAllReduce(data, data, bucket.elements, bucket.dtype, options.op, communicator.get(),
                        on),
        "hocketAllReduce");
}

void GradientReducer::Body::absent(int parameter) {
  require_alive();
  if (!options.find_unused_parameters) {
    throw InvalidUsage(operation, "absent() needs find_unused_parameters");
  }
  if (phase == Phase::idle) {
    throw InvalidUsage(operation, "begin() must be called before absent()");
  }
  if (!synchronizes || synchronized_backwards == 0) return;
  phase = Phase::backward;
  settle(parameter);
}

/// Says that the parameter gets nothing more in this backward.
void GradientReducer::Body::settle(int parameter) {
  Progress& mine = of(parameter);
  if (mine.complete) return;
  if (mine.times == 0) {
    mine.missing = Missing::absent;
    if (options.owner != nullptr) mine.unreduced = options.owner->needs_gradient(parameter);
    if (!mine.unreduced) {
      const Slot& place = slot(parameter);
      std::memset(gradient(parameter), 0,
                  place.elements * element_bytes(bucket_of(parameter).dtype));
    }
  }
  complete(parameter);
}

void GradientReducer::Body::end() {
  require_alive();
  if (phase == Phase::idle) {
    throw InvalidUsage(operation, "end() without begin()");
  }
  phase = Phase::idle;
  if (!synchronizes) return;
  const bool first = synchronized_backwards++ == 0;
  for (int parameter = 0; parameter < static_cast<int>(parameters.size()); ++parameter) {
    if (first) of(parameter).expected = std::max(of(parameter).times, 1);
    settle(parameter);
  }
  agree_on_status();
}

/// Waits for the buckets and exchanges what the ranks missed.
void GradientReducer::Body::agree_on_status() {
  const bool strict = !options.find_unused_parameters;
  std::int64_t late = 0, absent = 0;
  for (std::size_t i = 0; i < progress.size(); ++i) {
    late += progress[i].missing == Missing::late ? 1 : 0;
    absent += progress[i].missing == Missing::absent ? 1 : 0;
    used[i] = progress[i].unreduced ? 1 : 0;
    progress[i].unreduced = false;
  }
  std::int64_t problems[1] = {late + (strict ? absent : 0)};
  communicate([&] {
    const StreamRef where = overlaps ? StreamRef(stream) : StreamRef(caller_thread);
    if (!overlaps) {
      for (const Bucket& bucket : layout.buckets()) reduce(bucket, nullptr);
    }
    if (!strict) communicator.all_reduce(used, hocketMax, where);
    communicator.all_reduce(problems, hocketMax, where);
    if (overlaps) stream.synchronize();
  });
  if (problems[0] > 0) report_missing();
}

/// Every rank comes here, and throws the same.
void GradientReducer::Body::report_missing() {
  const auto ranks = static_cast<std::size_t>(communicator.ranks());
  const std::size_t count = parameters.size();
  std::vector<std::uint8_t> mine(count), all(count * ranks);
  for (std::size_t i = 0; i < count; ++i) {
    if (progress[i].missing == Missing::absent && options.find_unused_parameters) continue;
    mine[i] = static_cast<std::uint8_t>(progress[i].missing);
  }
  communicate([&] { communicator.all_gather(mine, all); });
  std::size_t first = count, further = 0;  // parameters that a rank missed
  for (std::size_t i = 0; i < count; ++i) {
    bool missed = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) missed = missed || all[rank * count + i] != 0;
    if (!missed) continue;
    if (first < count) ++further;
    first = std::min(first, i);
  }
  std::vector<int> absent, late;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto what = static_cast<Missing>(all[rank * count + first]);
    if (what == Missing::absent) absent.push_back(static_cast<int>(rank));
    if (what == Missing::late) late.push_back(static_cast<int>(rank));
  }
  throw_missing(parameters[first], further, absent, late, ranks);
}

/// Gives the parameters new places, in the order in which they became ready on rank 0.
void GradientReducer::Body::reorder() {
  reordered = true;
  std::vector<int> order = ready_order;  // those that did not become ready come last
  std::vector<char> in_order(parameters.size());
  for (const int parameter : order) in_order[static_cast<std::size_t>(parameter)] = 1;
  for (const int parameter : reverse_order(parameters.size())) {
    if (!in_order[static_cast<std::size_t>(parameter)]) order.push_back(parameter);
  }
  communicator.broadcast(order, 0);
  BucketLayout next(parameters, order, options.limits);

  // The arenas stay: their size does not depend on the order. Gradients that are still needed are
  // saved first.
  std::map<int, std::vector<std::byte>> saved;
  for (int parameter = 0; parameter < static_cast<int>(parameters.size()); ++parameter) {
    const bool needed = options.owner != nullptr ? options.owner->needs_gradient(parameter)
                                                 : of(parameter).unreduced;
    if (!needed) continue;
    const std::byte* const from = gradient(parameter);
    const Slot& place = slot(parameter);
    saved.emplace(parameter,
                  std::vector<std::byte>(
                      from, from + place.elements * element_bytes(bucket_of(parameter).dtype)));
  }
  layout = std::move(next);
  incomplete.resize(layout.buckets().size());
  for (auto& [dtype, arena] : arenas) std::memset(arena.data(), 0, arena.size());
  for (int parameter = 0; parameter < static_cast<int>(parameters.size()); ++parameter) {
    std::byte* const place = gradient(parameter);
    if (const auto found = saved.find(parameter); found != saved.end()) {
      std::copy(found->second.begin(), found->second.end(), place);
    }
    if (options.owner != nullptr) options.owner->moved(parameter, place);
  }
}

GradientReducer::GradientReducer(Communicator& comm, std::vector<Parameter> parameters,
                                 const ReducerOptions& options)
    : body_(std::make_unique<Body>(comm, std::move(parameters), options)) {}
GradientReducer::~GradientReducer() = default;

const std::vector<Parameter>& GradientReducer::parameters() const { return body_->parameters; }
const BucketLayout& GradientReducer::layout() const { return body_->layout; }
Communicator& GradientReducer::communicator() { return body_->communicator; }
void* GradientReducer::gradient(int parameter) const { return body_->gradient(parameter); }
void GradientReducer::begin(bool synchronize) { body_->begin(synchronize); }
void GradientReducer::ready(int parameter) { body_->ready(parameter); }
void GradientReducer::absent(int parameter) { body_->absent(parameter); }
void GradientReducer::end() { body_->end(); }
bool GradientReducer::was_used(int parameter) const {
  return body_->used.at(static_cast<std::size_t>(parameter)) != 0;
}
bool GradientReducer::synchronizes() const { return body_->synchronizes; }

}  // namespace hocket::training
