#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "training/gradients_body.h"
#include "training/non_finite.h"
#include "training/range_math.h"

namespace hocket::training {
namespace {}  // namespace

void GradientReducer::Body::begin(bool synchronized, Role new_role) {
  require_alive();
  if (phase == Phase::backward) {
    // Other ranks wait for the buckets of this backward.
    end();
    throw InvalidUsage(reducer_operation,
                       "the backward before has not ended: end() was not called");
  }
  synchronizes = synchronized;
  announced = false;
  agreed = false;
  if (synchronized && uneven.on() && new_role == Role::computes) announce(Turn::backward);
  if (synchronized && synchronized_backwards > 0 && options.reorder && !store.sharded() &&
      !reordered) {
    communicate([this] {
      if (tells_order()) {
        order->exchange(number, kind(), {0, 0});
        announced = true;
      }
      reorder();
    });
  }
  store.begin(uneven.factor(communicator.ranks()));
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
    each.non_finite = false;
  }
}

/// Where buckets are reduced during backward, or not at all, no rank waits for the others here.
/// Otherwise end() exchanges the announcement together with the status.
void GradientReducer::Body::announce_backward() {
  if (announced || !tells_order() || (synchronizes && !overlaps)) return;
  if (!synchronizes && options.uneven_accumulation) return;
  announced = true;
  communicate([this] {
    // Of backwards before that were not synchronized: an error of theirs must come before one of
    // a reduction that another rank has given up.
    if (synchronizes) order->wait();
    order->announce(number, kind());
  });
}

void GradientReducer::Body::ready(int parameter) {
  require_alive();
  if (phase == Phase::idle) {
    throw InvalidUsage(reducer_operation, "begin() must be called before a gradient becomes ready");
  }
  Progress& mine = of(parameter);
  ++mine.times;
  mine.unreduced = true;
  if (phase == Phase::begun) {
    phase = Phase::backward;
    announce_backward();
    // With a static graph some parameters are known to receive nothing.
    for (int p = 0; synchronizes && observed && p < count(); ++p) {
      if (of(p).expected == 0) settle(p);
    }
  }
  const auto bucket = static_cast<std::size_t>(layout.place(parameter).bucket);
  mine.outside = store.address(bucket) == nullptr;
  if (mine.outside && options.owner == nullptr) {
    throw InvalidUsage(reducer_operation,
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
  if (!mine.outside) look_for_non_finite(parameter);
  --incomplete[static_cast<std::size_t>(layout.place(parameter).bucket)];
  launch_complete_buckets();
}

/// The reduction overwrites this rank's gradient. It was written a moment ago, so most of it is
/// read from the cache here.
void GradientReducer::Body::look_for_non_finite(int parameter) {
  Progress& mine = of(parameter);
  if (!mine.unreduced) return;
  const hocketDataType_t dtype = bucket_of(parameter).dtype;
  if (!all_finite(gradient(parameter), slot(parameter).elements, dtype)) mine.non_finite = true;
}

void GradientReducer::Body::launch_complete_buckets() {
  // Without overlap end() reduces them all.
  while ((overlaps || ending) && launched < incomplete.size() && incomplete[launched] == 0) {
    communicate([this] {
      BucketTiming& timing = timings.buckets[launched];
      timing = {static_cast<int>(launched), layout.buckets()[launched].bytes(), now_s(), 0};
      launch(launched);
      if (overlaps) {
        stream_of(launched).run([&timing] { timing.end_s = now_s(); });
      } else {
        timing.end_s = now_s();
      }
    });
    ++launched;
  }
}

void GradientReducer::Body::launch(std::size_t index) {
  if (!store.pooled()) {
    if (reduction == nullptr) return store.reduce(index, communicator_of(index), where(index));
    return reduction->begin(data_of(index), communicator_of(index), where(index));
  }
  const Bucket& bucket = layout.buckets()[index];
  std::byte* const data = acquire(index);
  for (const Slot& each : bucket.slots) {
    Progress& mine = of(each.parameter);
    std::byte* const place = data + each.begin * element_bytes(bucket.dtype);
    if (mine.outside) {
      options.owner->deliver(each.parameter, place);
      look_for_non_finite(each.parameter);
    } else if (mine.zero) {
      std::memset(place, 0, each.elements * element_bytes(bucket.dtype));
    }
    mine.outside = false;
    if (options.owner != nullptr) options.owner->moved(each.parameter, nullptr);
  }
  store.reduce(index, communicator_of(index), where(index));
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
    throw InvalidUsage(reducer_operation, "absent() needs find_unused_parameters");
  }
  if (phase == Phase::idle) {
    throw InvalidUsage(reducer_operation, "begin() must be called before absent()");
  }
  if (!synchronizes || !observed) return;
  phase = Phase::backward;
  announce_backward();
  settle(parameter);
}

/// Says that the parameter gets nothing more in this backward.
void GradientReducer::Body::settle(int parameter) {
  Progress& mine = of(parameter);
  if (mine.complete) return;
  if (role == Role::abandoned) mine.missing = Missing::abandoned;
  if (mine.times == 0) {
    if (role == Role::computes && mine.expected > 0) mine.missing = Missing::absent;
    if (role == Role::shadows) {
      mine.unreduced = false;  // what the owner keeps is the average of a step before
    } else if (options.owner != nullptr) {
      mine.unreduced = options.owner->needs_gradient(parameter);
    }
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
    throw InvalidUsage(reducer_operation, "end() without begin()");
  }
  phase = Phase::idle;
  announce_backward();
  if (!synchronizes) {
    if (tells_order()) communicate([this] { order->look(); });
    return;
  }
  // Nothing is left to compute: this rank waits for everything that is reduced from here on.
  timings.wait_begin_s = now_s();
  const bool first = !observed && role == Role::computes;
  ++synchronized_backwards;
  observed = observed || first;
  for (int parameter = 0; parameter < count(); ++parameter) {
    settle(parameter);
    if (!first) continue;
    const int least = options.static_graph ? 0 : 1;
    of(parameter).expected = std::max(of(parameter).times, least);
  }
  const bool exchanges = tells_order() && !announced;
  StepOrder::Numbers problems = {0, 0};
  if (exchanges) {
    problems = own_problems();
    communicate([&] { problems = order->exchange(number, kind(), problems); });
  }
  ending = true;
  launch_complete_buckets();
  if (announced) communicate([this] { order->wait(); });
  if (synchronized_backwards == 1 && store.pooled()) communicate([this] { reduce_again(); });
  if (!exchanges) problems = own_problems();
  agree_on_status(problems, exchanges);
}

StepOrder::Numbers GradientReducer::Body::own_problems() {
  const bool finds_unused = looks_for_unused();
  StepOrder::Numbers problems = {0, 0};
  for (Progress& each : progress) {
    if (each.missing == Missing::absent && finds_unused) each.missing = Missing::no;
    problems[0] += each.missing == Missing::no ? 0 : 1;
    problems[1] += each.non_finite ? 1 : 0;
  }
  return problems;
}

/// Waits for the buckets and exchanges what the ranks missed.
void GradientReducer::Body::agree_on_status(StepOrder::Numbers problems, bool are_sums) {
  const bool finds_unused = looks_for_unused();
  std::vector<Missing> missing;
  std::vector<std::uint8_t> mine_used;
  for (Progress& each : progress) {
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
    if (!are_sums) communicator.all_reduce(problems, hocketSum, where());
    stream.synchronize();
    if (second_lane) second_lane->stream.synchronize();
    timings.wait_end_s = now_s();
    for (std::size_t b = 0; reduction != nullptr && b < layout.buckets().size(); ++b) {
      reduction->finish(data_of(b), communicator, where());
    }
    store.finish();
  });
  if (problems[0] == 0) return agree_on_non_finite(problems[1] > 0);
  store.discard();
  agreed = true;
  try {
    report_missing(reducer_operation, communicator, parameters, missing);
  } catch (const Mismatch&) {
    throw;
  } catch (const Error&) {
    // That backward failed on a rank does not end the reducer; an error of the communication does.
    if (communicator.async_error() == hocketSuccess) throw;
    failure = std::current_exception();
    if (uneven.on()) failure = uneven.cause_of(failure);
    std::rethrow_exception(failure);
  }
}

/// any: a gradient of some rank is not finite.
void GradientReducer::Body::agree_on_non_finite(bool any) {
  if (!any) {
    if (!store.adds()) non_finite.reset();
    return;
  }
  std::vector<std::uint8_t> mine;
  for (const Progress& each : progress) mine.push_back(each.non_finite ? 1 : 0);
  communicate([&] { non_finite = training::agree_on_non_finite(communicator, parameters, mine); });
  if (options.on_non_finite == OnNonFinite::keep) return;
  store.discard();
  agreed = true;
  throw InvalidArgument(
      reducer_operation,
      non_finite->text() +
          ", before gradients were averaged. The averages of this step are void: do not use them. "
          "Look at the loss and the data of that rank, or lower the learning rate. For a loop that "
          "leaves such steps out, as with LossScaler, set on_non_finite to OnNonFinite::keep",
      non_finite->ranks.size() == 1 ? non_finite->ranks.front() : -1);
}

void GradientReducer::Body::abandon() {
  if (phase == Phase::idle || failure != nullptr) return;
  role = Role::abandoned;
  end();
}

/// A rank that is done has no further backward that would reduce these gradients.
void GradientReducer::Body::require_reduced() {
  for (int parameter = 0; parameter < count(); ++parameter) {
    if (!of(parameter).unreduced) continue;
    if (options.owner != nullptr && !options.owner->needs_gradient(parameter)) continue;
    throw InvalidUsage(
        reducer_operation,
        fmt::format("this rank has no more data, but parameter {} has a gradient of a backward "
                    "that did not synchronize, which would be lost. Let the last backward of each "
                    "rank synchronize: run it without no_sync(), or after begin(true)",
                    describe(parameters[static_cast<std::size_t>(parameter)])));
  }
}

std::vector<GradientReducer::Turn> GradientReducer::Body::announce(Turn turn) {
  require_alive();
  if (!uneven.on()) throw InvalidUsage(reducer_operation, "announce() needs set_uneven(true)");
  if (turn == Turn::done) require_reduced();
  agreed = false;
  std::vector<Turn> turns;
  communicate([&] { turns = uneven.exchange(turn); });
  agreed = true;
  uneven.note(turns);
  agreed = false;
  return turns;
}

/// Where all ranks get an error, another rank may still be in the calls by which they agree on it.
void GradientReducer::Body::leave() noexcept {
  uneven.leave();
  if (failure == nullptr) {
    failure = std::make_exception_ptr(InvalidUsage(
        reducer_operation,
        "a Join of this reducer ended with an exception, so the reducer has ended too"));
    if (!agreed) hocketCommAbort(communicator.get());
    if (!agreed && second_lane) hocketCommAbort(second_lane->communicator.get());
  }
  uneven.set(false, false, communicator);
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
  body_->uneven.set(uneven, divide_by_active, body_->communicator);
}
void GradientReducer::leave() noexcept { body_->leave(); }
std::exception_ptr GradientReducer::cause_of(const std::exception_ptr& error) const noexcept {
  return body_->uneven.on() ? body_->uneven.cause_of(error) : error;
}
std::vector<GradientReducer::Turn> GradientReducer::announce(Turn turn) {
  return body_->announce(turn);
}
void GradientReducer::shadow() {
  body_->begin(true, Body::Role::shadows);
  body_->end();
}
bool GradientReducer::uneven() const { return body_->uneven.on(); }
void GradientReducer::require_all_ranks(const char* its_operation) const {
  if (body_->uneven.all_take_part()) return;
  throw InvalidUsage(its_operation,
                     "ranks that have no more data would not take part in this call: while a Join "
                     "exists, make it in JoinOptions::update, and call Join::update()");
}
int GradientReducer::last_active() const { return body_->uneven.last_active(); }
bool GradientReducer::was_used(int parameter) const {
  return body_->used.at(static_cast<std::size_t>(parameter)) != 0;
}
const NonFinite* GradientReducer::non_finite() const {
  return body_->non_finite ? &*body_->non_finite : nullptr;
}
bool GradientReducer::synchronizes() const { return body_->synchronizes; }

}  // namespace hocket::training
