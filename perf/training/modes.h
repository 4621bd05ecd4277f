// Ways to train a model on several ranks. A new way is a class here and a row in make_mode().
#pragma once

#include <hocket/hocket.hpp>
#include <memory>
#include <string>

#include "models.h"
#include "moment.h"

namespace lab {

/// A model, its optimizer, and how its gradients get to the other ranks. This base class is the
/// mode "none": it communicates nothing.
class Mode {
 public:
  explicit Mode(const Workload& workload);
  virtual ~Mode() = default;

  /// The loss; its backward() communicates.
  virtual at::Tensor forward(const Batch& batch) { return loss(batch); }
  virtual void optimize() { optimizer_->step(); }
  virtual void zero_grad() { optimizer_->zero_grad(); }
  /// All communication of a step, without its backward.
  virtual void communicate() {}
  [[nodiscard]] Model& model() { return *model_; }
  /// Bytes of parameters, gradients and the optimizer's state of this rank, by memory_of().
  [[nodiscard]] virtual std::size_t computed_bytes();
  /// When autograd had computed all gradients of the last backward. What follows until backward()
  /// returns is a wait for communication.
  [[nodiscard]] const Moment& computed() const { return *computed_; }

 protected:
  /// The model's loss. Every forward calls it, so that computed() is known.
  at::Tensor loss(const Batch& batch);
  /// For a way of training without that: computed() is now.
  void all_computed() { *computed_ = Moment::now(); }
  [[nodiscard]] const std::shared_ptr<Model>& shared_model() const { return model_; }
  [[nodiscard]] std::size_t parameter_bytes();
  [[nodiscard]] std::size_t state_bytes();  // of libtorch's optimizer

 private:
  std::shared_ptr<Model> model_;
  std::shared_ptr<Moment> computed_ = std::make_shared<Moment>();
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  const bool adamw_;
};

struct ModeOptions {
  int replicas = 2;            // of the mode dp
  double bucket_mb = 25;       // MiB; the first bucket has at most 1 MiB
  std::string interface_name;  // of Gloo's connections
  std::string address;         // of rank 0, for Gloo's store
};

/// Collective. none; barrier: none, but ranks wait for one another; hocket: DDP with libtorch's
/// optimizer; fused, zero1, zero2: with hocket's AdamW; dp: DataParallel, in one process;
/// checkpointed: none, with checkpointed activations; reducer: c10d's Reducer over Gloo. Throws
/// std::invalid_argument if the mode is unknown or was not built.
std::unique_ptr<Mode> make_mode(const std::string& name, const Workload& workload,
                                hocket::Communicator& comm, const ModeOptions& options);

/// Null if Gloo's headers were missing when the lab was built.
std::unique_ptr<Mode> make_reducer(const Workload& workload, hocket::Communicator& comm,
                                   const ModeOptions& options);

}  // namespace lab
