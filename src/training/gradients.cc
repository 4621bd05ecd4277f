#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <hocket/training/agreement.hpp>
#include <hocket/training/gradients.hpp>
#include <map>
#include <set>
#include <utility>

#include "training/gradient_store.h"
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

/// Null: the store reduces into shards.
std::shared_ptr<BucketReduction> chosen_reduction(const ReducerOptions& options) {
  if (options.reduction != nullptr && options.sharding == Sharding::zero2) {
    throw InvalidArgument(
        operation,
        "Sharding::zero2 reduces into shards, so it takes no BucketReduction: use "
        "Sharding::zero1, or leave the reduction out");
  }
  if (options.sharding != Sharding::none) return options.reduction;
  return options.reduction != nullptr ? options.reduction : std::make_shared<AllReduce>();
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
    bool outside = false;  // zero2: the owner keeps the gradient, until its bucket has a place
    bool zero = false;     // zero2: it has none, and its place becomes zero
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
        store(layout, options.sharding, options.cut, communicator.ranks(), communicator.rank()),
        reduction(chosen_reduction(given)),
        progress(parameters.size()),
        used(parameters.size(), 1) {
    use_layout();
    // A pool has no places for all buckets at once, so it reduces them during backward.
    overlaps = store.pooled() || estimated_us() >= options.least_overlap_us;
  }
  /// The time of all buckets one after another; equal on all ranks, as the measured figures are.
  float estimated_us() {
    Group buckets;
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      AllReduce().begin(data_of(b), communicator, caller_thread);
    }
    return buckets.simulate_end().value_or(0);
  }

  const Slot& slot(int parameter) const {
    const BucketLayout::Place place = layout.place(parameter);
    return bucket_of(parameter).slots[static_cast<std::size_t>(place.slot)];
  }
  const Bucket& bucket_of(int parameter) const {
    return layout.buckets()[static_cast<std::size_t>(layout.place(parameter).bucket)];
  }
  std::byte* gradient(int parameter) {
    const auto bucket = static_cast<std::size_t>(layout.place(parameter).bucket);
    std::byte* data = store.address(bucket);
    if (data == nullptr && synchronizes) {
      communicate([&] { data = store.acquire(bucket, launched); });
    }
    if (data == nullptr) return nullptr;
    return data + slot(parameter).begin * element_bytes(bucket_of(parameter).dtype);
  }
  std::size_t gradient_bytes(int parameter) const {
    return slot(parameter).elements * element_bytes(bucket_of(parameter).dtype);
  }
  BucketData data_of(std::size_t index) {
    const Bucket& bucket = layout.buckets()[index];
    return {static_cast<int>(index), &bucket, store.address(index)};
  }
  void use_layout() {
    incomplete.resize(layout.buckets().size());
    timings.buckets.resize(layout.buckets().size());
    if (reduction != nullptr) reduction->lay_out(parameters, layout);
  }
  StreamRef where() const { return overlaps ? StreamRef(stream) : StreamRef(caller_thread); }
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
  void launch(std::size_t bucket);
  void reduce_again();
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

  // ---- The order in which gradients become complete.

  void reorder();

  const ReducerOptions options;
  const std::vector<Parameter> parameters;
  Communicator communicator;
  BucketLayout layout;
  GradientStore store;
  const std::shared_ptr<BucketReduction> reduction;  // null: the store reduces into shards
  Stream stream = Stream::create();  // its destructor waits: it is destroyed before what it uses
  /// Whether the stream reduces buckets while backward computes; else end() reduces them all, in
  /// the calling thread.
  bool overlaps = true;
  bool ending = false;  // in end()

  std::vector<Progress> progress;       // by parameter
  std::vector<std::uint8_t> used;       // by parameter: by any rank, in the last backward reduced
  std::vector<std::size_t> incomplete;  // by bucket: how many of its parameters are not complete
  std::size_t launched = 0;             // buckets of this backward
  CommunicationTimings timings;         // of it; the stream's worker writes ends
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
  if (synchronized && synchronized_backwards > 0 && options.reorder && !store.sharded() &&
      !reordered) {
    communicate([this] { reorder(); });
  }
  const auto ranks = static_cast<double>(communicator.ranks());
  store.begin(uneven && divide_by_active && active > 0 ? ranks / static_cast<double>(active) : 1);
  synchronizes = synchronized;
  role = new_role;
  phase = Phase::begun;
  launched = 0;
  ending = false;
  for (std::size_t b = 0; b < incomplete.size(); ++b) {
    incomplete[b] = layout.buckets()[b].slots.size();
  }
  for (Progress& each : progress) {
    each.times = 0;
    each.complete = false;
    each.missing = Missing::no;
    each.zero = false;
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
  const auto bucket = static_cast<std::size_t>(layout.place(parameter).bucket);
  mine.outside = store.address(bucket) == nullptr;
  if (mine.outside && options.owner == nullptr) {
    throw InvalidUsage(operation,
                       fmt::format("parameter {} is ready, but has no place: gradient() was null, "
                                   "and there is no GradientOwner that keeps the gradient",
                                   describe(parameters[static_cast<std::size_t>(parameter)])));
  }
  if (!synchronizes) return;
  if (bucket < launched && store.pooled() && synchronized_backwards == 0) return;  // reduce_again()
  if (bucket < launched || (mine.expected == 0 && options.static_graph)) {
    mine.missing = Missing::late;
    return;
  }
  if (!observed) {
    // How often each parameter becomes ready is not known yet, so nothing is launched before the
    // end; except from a pool, which would not have places for all buckets.
    if (mine.times == 1) ready_order.push_back(parameter);
    if (!store.pooled()) return;
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
  // Without overlap end() reduces them all.
  while ((overlaps || ending) && launched < incomplete.size() && incomplete[launched] == 0) {
    communicate([this] {
      BucketTiming& timing = timings.buckets[launched];
      timing = {static_cast<int>(launched), layout.buckets()[launched].bytes(), now_s(), 0};
      launch(launched);
      if (overlaps) {
        stream.run([&timing] { timing.end_s = now_s(); });
      } else {
        timing.end_s = now_s();
      }
    });
    ++launched;
  }
}

void GradientReducer::Body::launch(std::size_t index) {
  if (!store.pooled()) {
    if (reduction == nullptr) return store.reduce(index, communicator, where());
    return reduction->begin(data_of(index), communicator, where());
  }
  const Bucket& bucket = layout.buckets()[index];
  std::byte* const data = store.acquire(index, launched);
  for (const Slot& each : bucket.slots) {
    Progress& mine = of(each.parameter);
    std::byte* const place = data + each.begin * element_bytes(bucket.dtype);
    if (mine.outside) {
      options.owner->deliver(each.parameter, place);
    } else if (mine.zero) {
      std::memset(place, 0, each.elements * element_bytes(bucket.dtype));
    }
    mine.outside = false;
    if (options.owner != nullptr) options.owner->moved(each.parameter, nullptr);
  }
  store.reduce(index, communicator, where());
}

/// In the first backward from a pool: gradients that came after their bucket had been launched,
/// because their parameter is used several times. All ranks reduce the buckets of such gradients
/// once more, and add the averages.
void GradientReducer::Body::reduce_again() {
  const std::vector<Bucket>& buckets = layout.buckets();
  std::vector<std::uint8_t> again(buckets.size());
  for (int p = 0; p < count(); ++p) {
    if (of(p).outside) again[static_cast<std::size_t>(layout.place(p).bucket)] = 1;
  }
  communicator.all_reduce(again, hocketMax, stream);
  stream.synchronize();
  store.finish();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (again[b] == 0) continue;
    for (const Slot& each : buckets[b].slots) of(each.parameter).zero = true;
    launched = b;
    launch(b);
  }
  launched = buckets.size();
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
    if (store.pooled()) {
      mine.outside = mine.unreduced;
      mine.zero = !mine.unreduced;
    } else if (!mine.unreduced) {
      std::memset(gradient(parameter), 0, gradient_bytes(parameter));
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
  const bool first = !observed && role == Role::computes;
  ending = true;
  ++synchronized_backwards;
  observed = observed || first;
  for (int parameter = 0; parameter < count(); ++parameter) {
    settle(parameter);
    if (!first) continue;
    const int least = options.static_graph ? 0 : 1;
    of(parameter).expected = std::max(of(parameter).times, least);
  }
  launch_complete_buckets();
  if (synchronized_backwards == 1 && store.pooled()) communicate([this] { reduce_again(); });
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
      // What is held from backwards before was used too.
      for (std::size_t i = 0; store.adds() && i < used.size(); ++i) mine_used[i] |= used[i];
      used = std::move(mine_used);
      communicator.all_reduce(used, hocketMax, where());
    }
    communicator.all_reduce(problems, hocketMax, where());
    timings.wait_begin_s = now_s();
    stream.synchronize();
    timings.wait_end_s = now_s();
    for (std::size_t b = 0; reduction != nullptr && b < layout.buckets().size(); ++b) {
      reduction->finish(data_of(b), communicator, where());
    }
    store.finish();
  });
  if (problems[0] == 0) return;
  store.discard();
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
  store.lay_out(layout);
  use_layout();
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
  return body_->store.held(body_->parameters);
}
bool GradientReducer::sharded() const { return body_->store.sharded(); }
void GradientReducer::discard() { body_->store.discard(); }
const ShardLayout& GradientReducer::shards() const { return body_->store.shards(); }
TrainingMemory GradientReducer::memory() const {
  return {.gradient_arena = body_->store.arena_bytes(), .gradient_pool = body_->store.pool_bytes()};
}
CommunicationTimings GradientReducer::last_timings() const { return body_->timings; }
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
  if (uneven && sharded()) {
    throw InvalidUsage(operation,
                       "ranks with sharded gradients must make the same number of steps: a rank "
                       "without data would be missing in the steps of the sharded optimizer. Give "
                       "all ranks the same number of batches, or use Sharding::none");
  }
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
