#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <hocket/training/agreement.hpp>
#include <hocket/training/gradients.hpp>
#include <map>
#include <set>
#include <utility>

#include "training/convert.h"
#include "training/missing.h"

namespace hocket::training {
namespace {

constexpr const char* operation = "hocket::training::GradientReducer";

void require_valid(const std::vector<Parameter>& parameters) {
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
}

/// After the ranks have agreed that they have the same, valid parameters.
Communicator own_communicator(Communicator& comm, const std::vector<Parameter>& parameters) {
  run_on_all(comm, operation, [&] { require_valid(parameters); });
  require_same_parameters(comm, parameters);
  return comm.duplicate({.name = "gradients"});
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
  enum class Role {
    computes,   // this rank has a backward of its own
    shadows,    // it takes part in that of other ranks, with zeros
    abandoned,  // its backward failed
  };

  Body(Communicator& comm, std::vector<Parameter> all, const ReducerOptions& given)
      : options(given),
        parameters(std::move(all)),
        communicator(own_communicator(comm, parameters)),
        layout(parameters, reverse_order(parameters.size()), options.limits),
        reduction(given.reduction != nullptr ? given.reduction : std::make_shared<AllReduce>()),
        progress(parameters.size()),
        used(parameters.size(), 1) {
    for (const BucketLayout::ArenaSize& arena : layout.arenas()) {
      arenas.emplace(arena.dtype, Memory<std::byte>(arena.bytes));
    }
    use_layout();
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
  std::size_t gradient_bytes(int parameter) const {
    return slot(parameter).elements * element_bytes(bucket_of(parameter).dtype);
  }
  BucketData data_of(std::size_t index) {
    const Bucket& bucket = layout.buckets()[index];
    return {static_cast<int>(index), &bucket, address(bucket)};
  }
  void use_layout() {
    incomplete.resize(layout.buckets().size());
    reduction->lay_out(parameters, layout);
  }
  Progress& of(int parameter) { return progress[static_cast<std::size_t>(parameter)]; }
  int count() const { return static_cast<int>(parameters.size()); }

  void require_alive() const {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  /// Runs something that communicates; its error ends the reducer, on all ranks.
  template <typename Action>
  void communicate(Action action) {
    try {
      action();
    } catch (...) {
      failure = std::current_exception();
      hocketCommAbort(communicator.get());
      throw;
    }
  }

  // ---- One backward.

  void begin(bool synchronized, Role role = Role::computes);
  void ready(int parameter);
  void complete(int parameter);
  void launch_complete_buckets();
  void absent(int parameter);
  void settle(int parameter);
  void end();
  void abandon();
  /// Whether the used parameters are found out in this backward.
  bool looks_for_unused() const {
    return options.find_unused_parameters || (options.static_graph && synchronized_backwards == 1);
  }
  void agree_on_status();

  // ---- Ranks with different numbers of backwards.

  std::vector<Turn> announce(Turn turn);
  void average_over_active();

  // ---- The order in which gradients become complete.

  void reorder();

  const ReducerOptions options;
  const std::vector<Parameter> parameters;
  Communicator communicator;
  BucketLayout layout;
  std::map<hocketDataType_t, Memory<std::byte>> arenas;
  const std::shared_ptr<BucketReduction> reduction;
  Stream stream = Stream::create();  // its destructor waits: it is destroyed before what it uses

  std::vector<Progress> progress;       // by parameter
  std::vector<std::uint8_t> used;       // by parameter: by any rank, in the last backward reduced
  std::vector<std::size_t> incomplete;  // by bucket: how many of its parameters are not complete
  std::size_t launched = 0;             // buckets of this backward
  std::vector<int> ready_order;         // of the first backward that is synchronized
  int synchronized_backwards = 0;       // that have ended, on all ranks
  bool observed = false;                // a backward of this rank that was synchronized has ended
  bool reordered = false;
  bool synchronizes = false;
  bool uneven = false, divide_by_active = false;
  std::size_t active = 0;  // how many ranks were not done in the last announcement
  int last_active = 0;     // the lowest of those, when there were any
  Phase phase = Phase::idle;
  Role role = Role::computes;
  std::exception_ptr failure;
};

void GradientReducer::Body::begin(bool synchronized, Role new_role) {
  require_alive();
  if (phase == Phase::backward) {
    // Other ranks wait for the buckets of this backward.
    end();
    throw InvalidUsage(operation, "the backward before has not ended: end() was not called");
  }
  if (synchronized && uneven && new_role == Role::computes) announce(Turn::backward);
  if (synchronized && synchronized_backwards > 0 && options.reorder && !reordered) {
    communicate([this] { reorder(); });
  }
  synchronizes = synchronized;
  role = new_role;
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
  Progress& mine = of(parameter);
  ++mine.times;
  mine.unreduced = true;
  if (phase == Phase::begun) {
    phase = Phase::backward;
    // With a static graph some parameters are known to receive nothing.
    for (int p = 0; synchronizes && observed && p < count(); ++p) {
      if (of(p).expected == 0) settle(p);
    }
  }
  if (!synchronizes) return;
  const auto bucket = static_cast<std::size_t>(layout.place(parameter).bucket);
  if (bucket < launched || (mine.expected == 0 && options.static_graph)) {
    mine.missing = Missing::late;
    return;
  }
  if (!observed) {
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
    communicate([this] { reduction->begin(data_of(launched), communicator, stream); });
    ++launched;
  }
}

void GradientReducer::Body::absent(int parameter) {
  require_alive();
  if (!options.find_unused_parameters) {
    throw InvalidUsage(operation, "absent() needs find_unused_parameters");
  }
  if (phase == Phase::idle) {
    throw InvalidUsage(operation, "begin() must be called before absent()");
  }
  if (!synchronizes || !observed) return;
  phase = Phase::backward;
  settle(parameter);
}

/// Says that the parameter gets nothing more in this backward.
void GradientReducer::Body::settle(int parameter) {
  Progress& mine = of(parameter);
  if (mine.complete) return;
  if (role == Role::abandoned) mine.missing = Missing::abandoned;
  if (mine.times == 0) {
    if (role == Role::computes && mine.expected > 0) mine.missing = Missing::absent;
    if (options.owner != nullptr) mine.unreduced = options.owner->needs_gradient(parameter);
    if (!mine.unreduced) std::memset(gradient(parameter), 0, gradient_bytes(parameter));
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
  const bool first = !observed && role == Role::computes;
  ++synchronized_backwards;
  observed = observed || first;
  for (int parameter = 0; parameter < count(); ++parameter) {
    settle(parameter);
    if (!first) continue;
    const int least = options.static_graph ? 0 : 1;
    of(parameter).expected = std::max(of(parameter).times, least);
  }
  agree_on_status();
}

/// Waits for the buckets and exchanges what the ranks missed.
void GradientReducer::Body::agree_on_status() {
  const bool finds_unused = looks_for_unused();
  std::vector<Missing> missing;
  std::int64_t problems[1] = {0};
  std::vector<std::uint8_t> mine_used;
  for (Progress& each : progress) {
    if (each.missing == Missing::absent && finds_unused) each.missing = Missing::no;
    problems[0] += each.missing == Missing::no ? 0 : 1;
    missing.push_back(each.missing);
    mine_used.push_back(each.unreduced ? 1 : 0);
    each.unreduced = false;
  }
  communicate([&] {
    if (finds_unused) {
      used = std::move(mine_used);
      communicator.all_reduce(used, hocketMax, stream);
    }
    communicator.all_reduce(problems, hocketMax, stream);
    stream.synchronize();
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      reduction->finish(data_of(b), communicator, stream);
    }
    if (uneven && divide_by_active) average_over_active();
  });
  if (problems[0] == 0) return;
  try {
    report_missing(operation, communicator, parameters, missing);
  } catch (const Mismatch&) {
    throw;
  } catch (const Error&) {
    // That backward failed on a rank does not end the reducer; an error of the communication does.
    if (communicator.async_error() != hocketSuccess) failure = std::current_exception();
    throw;
  }
}

void GradientReducer::Body::abandon() {
  if (phase == Phase::idle || failure != nullptr) return;
  role = Role::abandoned;
  end();
}

std::vector<GradientReducer::Turn> GradientReducer::Body::announce(Turn turn) {
  require_alive();
  if (!uneven) throw InvalidUsage(operation, "announce() needs set_uneven(true)");
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(communicator.ranks()));
  const std::uint8_t mine[] = {static_cast<std::uint8_t>(turn)};
  communicate([&] { communicator.all_gather(mine, codes); });
  std::vector<Turn> turns;
  std::vector<int> backward, other;
  for (const std::uint8_t code : codes) {
    const int rank = static_cast<int>(turns.size());
    turns.push_back(static_cast<Turn>(code));
    if (turns.back() == Turn::backward) backward.push_back(rank);
    if (turns.back() == Turn::other) other.push_back(rank);
  }
  active = backward.size() + other.size();
  const auto first =
      std::find_if(turns.begin(), turns.end(), [](Turn each) { return each != Turn::done; });
  if (first != turns.end()) last_active = static_cast<int>(first - turns.begin());
  if (!backward.empty() && !other.empty()) {
    throw Mismatch(operation,
                   fmt::format("{} began a backward while {} began a forward that broadcasts "
                               "buffers: all ranks must make the same calls in the same order",
                               ranks_text(backward), ranks_text(other)));
  }
  return turns;
}

/// The gradients were divided by the number of all ranks.
void GradientReducer::Body::average_over_active() {
  const auto ranks = static_cast<std::size_t>(communicator.ranks());
  if (active == 0 || active == ranks) return;
  const double factor = static_cast<double>(ranks) / static_cast<double>(active);
  for (const Bucket& bucket : layout.buckets()) {
    std::byte* const data = address(bucket);
    if (bucket.dtype == hocketFloat64) {
      auto* const elements = reinterpret_cast<double*>(data);
      for (std::size_t i = 0; i < bucket.elements; ++i) elements[i] *= factor;
    } else if (bucket.dtype == hocketFloat32) {
      auto* const elements = reinterpret_cast<float*>(data);
      for (std::size_t i = 0; i < bucket.elements; ++i) elements[i] *= static_cast<float>(factor);
    } else {
      std::vector<float> wide(bucket.elements);
      widen(data, wide.data(), wide.size(), bucket.dtype);
      for (float& each : wide) each *= static_cast<float>(factor);
      narrow(wide.data(), data, wide.size(), bucket.dtype);
    }
  }
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
    saved.emplace(parameter, std::vector<std::byte>(from, from + gradient_bytes(parameter)));
  }
  layout = std::move(next);
  use_layout();
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
std::vector<TensorRange> GradientReducer::held() const {
  std::vector<TensorRange> all;
  for (int p = 0; p < static_cast<int>(body_->parameters.size()); ++p) {
    const Parameter& parameter = body_->parameters[static_cast<std::size_t>(p)];
    all.push_back({parameter, 0, parameter.elements(), body_->gradient(p)});
  }
  return all;
}
bool GradientReducer::sharded() const { return false; }
void GradientReducer::begin(bool synchronize) { body_->begin(synchronize); }
void GradientReducer::ready(int parameter) { body_->ready(parameter); }
void GradientReducer::absent(int parameter) { body_->absent(parameter); }
void GradientReducer::end() { body_->end(); }
void GradientReducer::abandon() noexcept {
  try {
    body_->abandon();
  } catch (...) {
    // The exception that ended backward is under way. An error of the communication is kept, and
    // the next call throws it.
  }
}
void GradientReducer::set_uneven(bool uneven, bool divide_by_active) {
  body_->uneven = uneven;
  body_->divide_by_active = divide_by_active;
  body_->active = static_cast<std::size_t>(body_->communicator.ranks());
}
std::vector<GradientReducer::Turn> GradientReducer::announce(Turn turn) {
  return body_->announce(turn);
}
void GradientReducer::shadow() {
  body_->begin(true, Body::Role::shadows);
  body_->end();
}
bool GradientReducer::uneven() const { return body_->uneven; }
int GradientReducer::last_active() const { return body_->last_active; }
bool GradientReducer::was_used(int parameter) const {
  return body_->used.at(static_cast<std::size_t>(parameter)) != 0;
}
bool GradientReducer::synchronizes() const { return body_->synchronizes; }

}  // namespace hocket::training
