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
#include <hocket/hocket.hpp>
#include <hocket/training/buckets.hpp>
#include <hocket/training/parameter.hpp>
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
  virtual void moved(int parameter, void* place) = 0;
};

struct ReducerOptions {
  BucketLimits limits;
  /// hocketAvg or hocketSum.
  hocketRedOp_t op = hocketAvg;
  /// Parameters may receive no gradient in a backward, on some ranks or on all. Without it that is
  /// an error at the end of backward, on all ranks.
  bool find_unused_parameters = false;
  /// After the first backward, puts the parameters into buckets in the order in which their
  /// gradients became complete on rank 0.
  bool reorder = true;
  /// If all buckets together take less than this many microseconds, by the figures that were
  /// measured when the communicator was made, end() reduces them in the calling thread. To overlap
  /// them would take longer: a worker and the thread that waits for it must be woken.
  float least_overlap_us = 500;
  /// Outlives the reducer; may be null.
  GradientOwner* owner = nullptr;
};

/// Owns the memory of a model's gradients, and reduces it in buckets. Used by one thread at a time.
///
/// Every rank makes the same calls of begin() and end(), with the same arguments. An error of the
/// communication ends the reducer: each later call throws it again.
class GradientReducer {
 public:
  /// Collective. Makes a communicator of its own (a duplicate of comm, which may be destroyed
  /// afterwards), and allocates the gradients, which are zero.
  /// Throws hocket::Mismatch on all ranks if the ranks' parameters differ, and names the first
  /// parameter that does; InvalidArgument if a parameter's type is no floating-point type of at
  /// least 16 bits, or two parameters have one name.
  GradientReducer(Communicator& comm, std::vector<Parameter> parameters,
                  const ReducerOptions& options = {});
  /// Waits for the reductions that were begun.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  [[nodiscard]] const std::vector<Parameter>& parameters() const;
  [[nodiscard]] const BucketLayout& layout() const;
  [[nodiscard]] Communicator& communicator();

  /// Where the gradient of the parameter lies: elements() elements of its type, aligned to 64
  /// bytes. It moves only in begin(), once, after the first backward that was synchronized.
  [[nodiscard]] void* gradient(int parameter) const;

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
  /// Backward has ended. Reduces what is left and waits for all buckets.
  /// Throws, after all buckets have been reduced and on all ranks, hocket::Mismatch if a parameter
  /// received no gradient (without find_unused_parameters) or received one after its bucket was
  /// reduced; the message names the parameter and the ranks.
  void end();

  /// After end(): whether any rank had a gradient for the parameter. If not, its place is zero.
  [[nodiscard]] bool was_used(int parameter) const;
  /// Whether a backward is under way that will reduce gradients.
  [[nodiscard]] bool synchronizes() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace hocket::training
