// Data-parallel gradients: averages the gradients of all ranks while backward still computes.
//
//   GradientReducer reducer(comm, parameters);         // gradients now live in hocket memory
//   for (each step) {
//     reducer.begin();
//     for (each parameter p, as backward computes it) {
//       write its gradient to reducer.gradient(p);
//       reducer.ready(p);
//     }
//     reducer.end();                                   // every place has the average of all ranks
//     optimizer step, from reducer.gradient(p)
//   }
//
// A program that has an array for each gradient uses the reducer like that. The adapter for
// libtorch (hocket/training/torch/) drives it from autograd's hooks.
#pragma once

#include <cstdint>
#include <exception>
#include <hocket/hocket.hpp>
#include <hocket/training/buckets.hpp>
#include <hocket/training/parameter.hpp>
#include <hocket/training/reduction.hpp>
#include <hocket/training/shards.hpp>
#include <hocket/training/tensor_range.hpp>
#include <hocket/training/timing.hpp>
#include <memory>
#include <span>
#include <vector>

namespace hocket::training {

/// The program's side of the gradients: what a reducer asks when it moves places. A program that
/// calls gradient() anew in each step, and keeps no gradient from step to step, needs none.
class GradientOwner {
 public:
  virtual ~GradientOwner() = default;
  /// Whether the program still needs the gradient that lies at the parameter's place.
  virtual bool needs_gradient(int parameter) = 0;
  /// The place of the parameter's gradient has moved, and the gradient with it if it was needed.
  /// Sharding::zero2: null when the gradient's reduction has begun; the gradient is void then.
  virtual void moved(int parameter, void* place) = 0;
  /// Sharding::zero2: the parameter has a place now. The owner writes the gradient to it that it
  /// kept because gradient() was null when the parameter became ready.
  virtual void deliver(int parameter, void* place) { (void)parameter, (void)place; }
};

struct NonFinite;  // non_finite.hpp

/// What the end of a backward does if a gradient of any rank was NaN or infinite.
enum class OnNonFinite : std::uint8_t {
  error,  // end() throws, on all ranks
  keep,   // the averages stay, for a loop that leaves such steps out (with LossScaler, for example)
};

struct ReducerOptions {
  BucketLimits limits{};
  /// What this rank holds after a backward: the averages of all gradients, or those of its shard.
  Sharding sharding = Sharding::none;
  ShardCut cut = ShardCut::elements;
  /// How buckets are reduced; null: the average in each type. Not with Sharding::zero2.
  std::shared_ptr<BucketReduction> reduction{};
  /// Parameters may receive no gradient in a backward, on some ranks or on all. Without it that is
  /// an error at the end of backward, on all ranks.
  bool find_unused_parameters = false;
  /// The graph is the same in every step: the parameters to which this rank gives no gradient in
  /// the first backward that is synchronized receive none later either, and nothing waits for them.
  bool static_graph = false;
  /// Ranks may run different numbers of backwards that are not synchronized before one that is: for
  /// example each until it has a number of tokens. The same on all ranks. Without it a backward
  /// that only some ranks synchronize is an error; with it the next synchronized backwards are
  /// averaged.
  bool uneven_accumulation = false;
  /// Each rank looks at its own gradients before they are reduced: see non_finite().
  OnNonFinite on_non_finite = OnNonFinite::error;
  /// After the first backward, puts the parameters into buckets in the order in which their
  /// gradients became complete on rank 0. Not with sharding, where the layout decides who holds
  /// what.
  bool reorder = true;
  /// If all buckets together take less than this many microseconds, by the figures that were
  /// measured when the communicator was made, end() reduces them in the calling thread. To overlap
  /// them would take longer: a worker and the thread that waits for it must be woken.
  float least_overlap_us = 500;
  /// Outlives the reducer; may be null.
  GradientOwner* owner = nullptr;
};

/// Owns the memory of a model's gradients, and reduces it in buckets. One thread uses all reducers
/// of a communicator. Every rank makes the same calls of their begin() and end(), in the same order
/// and with the same arguments (see uneven_accumulation). If not, the backward, or a later call on
/// a rank that did not synchronize it, throws Mismatch. This and errors of the communication end
/// the reducer.
class GradientReducer {
 public:
  /// Collective. Makes communicators of its own (duplicates of comm, which may be destroyed
  /// afterwards): one, or two where buckets are reduced during backward, so that two buckets are in
  /// flight. Allocates the gradients, which are zero.
  /// Throws hocket::Mismatch on all ranks if the ranks' parameters differ, and names the first
  /// parameter that does; InvalidArgument, also on all ranks, if on any rank a parameter's type is
  /// no floating-point type of at least 16 bits, or two parameters have one name.
  GradientReducer(Communicator& comm, std::vector<Parameter> parameters,
                  const ReducerOptions& options = {});
  /// Waits for the reductions that were begun.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  [[nodiscard]] const std::vector<Parameter>& parameters() const;
  [[nodiscard]] const BucketLayout& layout() const;
  /// The first of the reducer's communicators.
  [[nodiscard]] Communicator& communicator();

  /// Where the gradient of the parameter lies: elements() elements of its type, aligned to 64
  /// bytes. It moves only in begin(), once, after the first backward that was synchronized.
  ///
  /// Sharding::zero2: memory for gradients is two places, each as large as the largest bucket. So
  /// this is called in a backward that synchronizes, when the gradient was computed. It may wait
  /// until an older bucket has been reduced. It is null if older buckets are not complete yet, or
  /// the backward does not synchronize: then the program keeps the gradient, calls ready(), and
  /// gives it to the reducer in GradientOwner::deliver().
  [[nodiscard]] void* gradient(int parameter) const;

  /// The gradients that this rank holds after end(), in the order of the parameters: every
  /// parameter as a whole, or, where the reducer is sharded, this rank's ranges. They move when
  /// gradient() does.
  [[nodiscard]] std::vector<TensorRange> held() const;
  /// Whether ranks hold different ranges. If not, all ranks hold the same values.
  [[nodiscard]] bool sharded() const;
  /// Sharded: the held gradients have been used. Without that a further backward that synchronizes
  /// adds its averages to them. (In Sharding::zero1 this takes memory for a second shard, from the
  /// first such backward on.) Places that hold all gradients are the program's to write or to add
  /// to.
  void discard();
  /// The ranges of all ranks, and the bytes that were allocated for gradients.
  [[nodiscard]] const ShardLayout& shards() const;
  [[nodiscard]] TrainingMemory memory() const;

  /// A forward and a backward follow. synchronize = false: backward reduces nothing, so that
  /// gradients can be added up over several backwards. A begin() without an end() is allowed (a
  /// forward that has no backward) if no gradient became ready.
  void begin(bool synchronize = true);
  /// The gradient at the parameter's place is complete. A parameter that is used several times may
  /// become ready several times, as often in each backward as in the first.
  void ready(int parameter);
  /// The parameter will get no gradient in this backward, so its bucket need not wait for the end
  /// of backward. Only with find_unused_parameters. A gradient of an earlier backward that was not
  /// reduced yet, or that the owner needs, is reduced; otherwise the parameter's place becomes
  /// zero.
  void absent(int parameter);
  /// Backward has ended. Reduces the buckets that are not reduced yet, and waits for all buckets.
  /// Throws, after all buckets have been reduced and on all ranks, hocket::Mismatch if a parameter
  /// received no gradient (without find_unused_parameters) or received one after its bucket was
  /// reduced; the message names the parameter and the ranks. Throws InvalidArgument, in the same
  /// way, if a rank's own gradient was NaN or infinite (OnNonFinite::error). After these errors the
  /// averages are void, and the next backward may begin.
  void end();
  /// Backward has failed on this rank. Completes the collectives that other ranks wait for; their
  /// end() throws RemoteError, with this rank as the culprit. The averages are void. Does nothing
  /// if no backward is under way. Throws nothing.
  void abandon() noexcept;

  // ---- Ranks with different numbers of backwards. See Join.

  /// What a rank does next, as it tells the others. update: what follows a backward on all ranks,
  /// also on those that are done.
  enum class Turn : std::uint8_t { done = 0, backward = 1, other = 2, update = 3 };
  /// From now on every rank announces each synchronized backward to the others, so that ranks that
  /// have no more data can take part. divide_by_active: the average is over the ranks that have
  /// data. Collective the first time that uneven is true.
  void set_uneven(bool uneven, bool divide_by_active = false);
  /// While ranks are uneven: this rank makes no further step, because of an exception. The other
  /// ranks get RemoteError, with this rank as the culprit, unless all ranks have got an error of
  /// the last backward or announcement. Ends the reducer.
  void leave() noexcept;
  /// A call that followed an announcement has failed with this error. Returns RemoteError, which
  /// names the rank, if another rank has left(), and that is why; else the error.
  [[nodiscard]] std::exception_ptr cause_of(const std::exception_ptr& error) const noexcept;
  /// Collective among ranks that make different calls: tells the other ranks what this rank does
  /// next, and returns what each rank does. begin(true) announces itself. Throws Mismatch on all
  /// ranks if ranks that are not done do different things; InvalidUsage, on this rank, if it is
  /// done and has gradients of backwards that did not synchronize.
  std::vector<Turn> announce(Turn turn);
  /// Takes part in a backward that the other ranks have announced, with zeros, whatever gradients
  /// the owner keeps.
  void shadow();
  [[nodiscard]] bool uneven() const;
  /// Throws InvalidUsage in the name of the operation, which all ranks must call, if ranks that are
  /// done do not call it: ranks are uneven, and the last announcement was not Turn::update.
  void require_all_ranks(const char* operation) const;
  /// The lowest rank that was not done in the last announcement in which any rank was not.
  [[nodiscard]] int last_active() const;

  /// When the buckets of the last backward that was synchronized were communicated, and how long
  /// end() took until all of them had ended. Buckets that end() itself reduces are part of its
  /// wait.
  [[nodiscard]] CommunicationTimings last_timings() const;
  /// After end(): whether any rank had a gradient for the parameter. If not, its place is zero.
  [[nodiscard]] bool was_used(int parameter) const;
  /// Whose own gradients, before the reduction, were NaN or infinite in the last backward that was
  /// synchronized, or in the backwards before whose averages are added to its averages. The same on
  /// all ranks. Null: those of all ranks were finite. (The averages may still be infinite: a sum
  /// can be too large for its type. find_non_finite() finds both.) Valid until the next begin().
  [[nodiscard]] const NonFinite* non_finite() const;
  /// Whether the last begin() was to synchronize.
  [[nodiscard]] bool synchronizes() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace hocket::training
