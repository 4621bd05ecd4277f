// What a reducer of gradients consists of. gradients.cc has a backward, gradients_layout.cc the
// places of gradients, uneven_steps.h ranks with different numbers of backwards.
#pragma once

#include <exception>
#include <hocket/training/gradients.hpp>
#include <hocket/training/non_finite.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "training/gradient_store.h"
#include "training/missing.h"
#include "training/step_order.h"
#include "training/uneven_steps.h"

namespace hocket::training {

struct GradientReducer::Body {
  /// What is known of a parameter.
  struct Progress {
    int times = 0;                  // how often it became ready in this backward
    int expected = 1;               // how often it became ready in the first backward
    bool complete = false;          // in this backward: its bucket need not wait for it
    bool unreduced = false;         // its place has a gradient that was not reduced yet
    Missing missing = Missing::no;  // in this backward
    bool outside = false;     // zero2: the owner keeps the gradient, until its bucket has a place
    bool zero = false;        // zero2: it has none, and its place becomes zero
    bool non_finite = false;  // in this backward: before the reduction
  };
  enum class Phase { idle, begun, backward };
  enum class Role {
    computes,   // this rank has a backward of its own
    shadows,    // it takes part in that of other ranks, with zeros
    abandoned,  // its backward failed
  };

  Body(Communicator& comm, std::vector<Parameter> all, const ReducerOptions& given);
  /// The time of all buckets one after another; equal on all ranks, as the measured figures are.
  float estimated_us();

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
      communicate([&] { data = acquire(bucket); });
    }
    if (data == nullptr) return nullptr;
    return data + slot(parameter).begin * element_bytes(bucket_of(parameter).dtype);
  }
  /// Waits for no reduction that another rank never begins.
  std::byte* acquire(std::size_t bucket) {
    if (tells_order() && store.must_wait(bucket)) order->wait();
    return store.acquire(bucket, launched);
  }
  std::size_t gradient_bytes(int parameter) const {
    return slot(parameter).elements * element_bytes(bucket_of(parameter).dtype);
  }
  BucketData data_of(std::size_t index) {
    const Bucket& bucket = layout.buckets()[index];
    return {static_cast<int>(index), &bucket, store.address(index)};
  }
  void use_layout();
  StreamRef where() const { return overlaps ? StreamRef(stream) : StreamRef(caller_thread); }
  StreamRef where(std::size_t bucket) {
    return overlaps ? StreamRef(stream_of(bucket)) : StreamRef(caller_thread);
  }
  bool uses_second_lane(std::size_t bucket) const { return second_lane && bucket % 2 == 1; }
  Stream& stream_of(std::size_t bucket) {
    return uses_second_lane(bucket) ? second_lane->stream : stream;
  }
  Communicator& communicator_of(std::size_t bucket) {
    return uses_second_lane(bucket) ? second_lane->communicator : communicator;
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
      if (tells_order()) failure = order->cause_of(failure);
      if (uneven.on()) {
        failure = uneven.cause_of(failure);
        uneven.leave();
      }
      hocketCommAbort(communicator.get());
      if (second_lane) hocketCommAbort(second_lane->communicator.get());
      // Nothing writes to gradients and timings any more when the caller gets the error.
      hocketStreamSynchronize(stream.get());
      if (second_lane) hocketStreamSynchronize(second_lane->stream.get());
      std::rethrow_exception(failure);
    }
  }

  // ---- One backward.

  void begin(bool synchronized, Role role = Role::computes);
  void ready(int parameter);
  void complete(int parameter);
  void look_for_non_finite(int parameter);
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
  /// How many parameters miss something, and how many gradients are not finite.
  StepOrder::Numbers own_problems();
  /// problems: of this rank, or are_sums: of all ranks.
  void agree_on_status(StepOrder::Numbers problems, bool are_sums);
  void agree_on_non_finite(bool any);

  // ---- The order of backwards on all ranks.

  /// Ranks with different numbers of backwards have their own announcements.
  bool tells_order() const { return communicator.ranks() > 1 && !uneven.on(); }
  StepOrder::Kind kind() const {
    return synchronizes ? StepOrder::Kind::reduced : StepOrder::Kind::local;
  }
  void announce_backward();

  // ---- Ranks with different numbers of backwards.

  std::vector<Turn> announce(Turn turn);
  void require_reduced();
  void leave() noexcept;

  // ---- The order in which gradients become complete.

  void reorder();

  const ReducerOptions options;
  const std::vector<Parameter> parameters;
  Communicator communicator;
  BucketLayout layout;
  GradientStore store;
  const std::shared_ptr<BucketReduction> reduction;  // null: the store reduces into shards
  CommunicationTimings timings;      // of the last backward; the streams' workers write ends
  Stream stream = Stream::create();  // its destructor waits: it is destroyed before what it uses
  /// Where buckets overlap, two of them are in flight: those with odd indices are reduced by a
  /// communicator and a stream of their own. While one waits for its peers, the other moves bytes.
  struct Lane {
    explicit Lane(Communicator&& own) : communicator(std::move(own)) {}
    Communicator communicator;
    Stream stream = Stream::create();
  };
  std::optional<Lane> second_lane;
  /// Whether the stream reduces buckets while backward computes; else end() reduces them all, in
  /// the calling thread.
  bool overlaps = true;
  bool ending = false;  // in end()

  std::vector<Progress> progress;       // by parameter
  std::optional<NonFinite> non_finite;  // see GradientReducer::non_finite()
  std::vector<std::uint8_t> used;       // by parameter: by any rank, in the last backward reduced
  std::vector<std::size_t> incomplete;  // by bucket: how many of its parameters are not complete
  std::size_t launched = 0;             // buckets of this backward
  std::vector<int> ready_order;         // of the first backward that is synchronized
  int synchronized_backwards = 0;       // that have ended, on all ranks
  bool observed = false;                // a backward of this rank that was synchronized has ended
  bool reordered = false;
  bool synchronizes = false;
  UnevenSteps uneven;
  bool agreed = false;               // all ranks get an error: of the last backward or announcement
  std::shared_ptr<StepOrder> order;  // shared with the other reducers of the communicator
  std::int64_t number = 0;           // in the order
  bool announced = false;            // this backward
  Phase phase = Phase::idle;
  Role role = Role::computes;
  std::exception_ptr failure;
};

}  // namespace hocket::training
