#include "modes.h"

#include <torch/csrc/autograd/engine.h>

#include <hocket/training/sharded_optimizer.hpp>
#include <hocket/training/torch/data_parallel.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <stdexcept>
#include <utility>

namespace lab {
namespace {

hocket::training::BucketLimits limits(const ModeOptions& options) {
  hocket::training::BucketLimits limits;
  limits.bytes = static_cast<std::size_t>(options.bucket_mb * (1 << 20));
  limits.first_bytes = std::min(limits.first_bytes, limits.bytes);
  return limits;
}

using hocket::training::Sharding;

class HocketMode : public Mode {
 public:
  HocketMode(const Workload& workload, hocket::Communicator& comm, const ModeOptions& options,
             Sharding sharding = Sharding::none)
      : Mode(workload),
        ddp_(model(), comm, {.limits = limits(options), .sharding = sharding}),
        limits_(limits(options)) {}
  at::Tensor forward(const Batch& batch) override {
    return ddp_.run([&] { return loss(batch); });
  }
  void communicate() override {
    auto& reducer = ddp_.reducer();
    reducer.begin();
    for (const auto& bucket : reducer.layout().buckets()) {
      for (const auto& slot : bucket.slots) reducer.ready(slot.parameter);
    }
    reducer.end();
  }
  std::size_t computed_bytes() override {
    return parameter_bytes() + memory(Sharding::none).gradient_arena + state_bytes();
  }

 protected:
  hocket::training::TrainingMemory memory(Sharding sharding) {
    auto& reducer = ddp_.reducer();
    return hocket::training::memory_of(sharding, reducer.parameters(),
                                       reducer.communicator().ranks(),
                                       reducer.communicator().rank(), limits_);
  }
  hocket::training::DistributedDataParallel ddp_;

 private:
  const hocket::training::BucketLimits limits_;
};

/// With hocket's AdamW, whole on every rank or sharded.
class FusedMode final : public HocketMode {
 public:
  FusedMode(const Workload& workload, hocket::Communicator& comm, const ModeOptions& options,
            Sharding sharding)
      : HocketMode(workload, comm, options, sharding),
        optimizer_(ddp_.parameters(), {.learning_rate = 3e-4}),
        sharding_(sharding) {}
  void optimize() override { optimizer_.step(); }
  void zero_grad() override { model().zero_grad(); }
  std::size_t computed_bytes() override {
    // Without sharding the parameters are libtorch's memory.
    return memory(sharding_).total() + (sharding_ == Sharding::none ? parameter_bytes() : 0);
  }

 private:
  hocket::training::ShardedAdamW optimizer_;
  const Sharding sharding_;
};

/// The ranks wait for one another at the end of each backward and move nothing: what any way to add
/// up gradients costs at least where ranks take different times for their backward.
class BarrierMode final : public Mode {
 public:
  BarrierMode(const Workload& workload, hocket::Communicator& comm) : Mode(workload), comm_(comm) {}
  at::Tensor forward(const Batch& batch) override {
    at::Tensor loss = this->loss(batch);
    loss.register_hook([this](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] { comm_.barrier(); });
    });
    return loss;
  }

 private:
  hocket::Communicator& comm_;
};

/// One process that trains the rows of all ranks, a part in each thread. Its forward is the whole
/// step up to the optimizer, and its backward does nothing.
class DataParallelMode final : public Mode {
 public:
  DataParallelMode(const Workload& workload, int replicas)
      : Mode(workload),
        parallel_(shared_model(), replicas, [workload] { return make_model(workload); }),
        replicas_(static_cast<std::size_t>(replicas)) {}
  at::Tensor forward(const Batch& batch) override {
    parallel_.backward(
        [](Model& model, const at::Tensor& data, const at::Tensor& target) {
          return model.loss({data, target});
        },
        batch.data, batch.target);
    all_computed();
    return torch::zeros({}, torch::requires_grad());
  }
  /// After the step. While gradients are added up, every replica has its own.
  std::size_t computed_bytes() override {
    return (replicas_ + 1) * parameter_bytes() + state_bytes();
  }

 private:
  hocket::training::DataParallel<Model> parallel_;
  const std::size_t replicas_;
};

class CheckpointedMode final : public Mode {
 public:
  explicit CheckpointedMode(const Workload& workload) : Mode(workload) {
    model().checkpoints_activations = true;
  }
};

}  // namespace

Mode::Mode(const Workload& workload) : model_(make_model(workload)), adamw_(workload.adamw) {
  if (workload.adamw) {
    optimizer_ = std::make_unique<torch::optim::AdamW>(model_->parameters(),
                                                       torch::optim::AdamWOptions(3e-4));
  } else {
    optimizer_ =
        std::make_unique<torch::optim::SGD>(model_->parameters(), torch::optim::SGDOptions(0.01));
  }
}

std::size_t Mode::parameter_bytes() {
  std::size_t bytes = 0;
  for (const at::Tensor& each : model_->parameters()) bytes += each.nbytes();
  return bytes;
}
std::size_t Mode::state_bytes() { return adamw_ ? 2 * parameter_bytes() : 0; }
std::size_t Mode::computed_bytes() { return 2 * parameter_bytes() + state_bytes(); }

/// The callback is queued by the first hook of the loss, so it runs before the callbacks in which
/// reducers wait for their buckets.
at::Tensor Mode::loss(const Batch& batch) {
  at::Tensor loss = model_->loss(batch);
  loss.register_hook([computed = computed_](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback(
        [computed] { *computed = Moment::now(); });
  });
  return loss;
}

std::unique_ptr<Mode> make_mode(const std::string& name, const Workload& workload,
                                hocket::Communicator& comm, const ModeOptions& options) {
  if (name == "none") return std::make_unique<Mode>(workload);
  if (name == "barrier") return std::make_unique<BarrierMode>(workload, comm);
  if (name == "hocket") return std::make_unique<HocketMode>(workload, comm, options);
  if (name == "dp") {
    if (comm.ranks() == 1) return std::make_unique<DataParallelMode>(workload, options.replicas);
    throw std::invalid_argument("the mode 'dp' is one process: start 1 rank");
  }
  if (name == "checkpointed") return std::make_unique<CheckpointedMode>(workload);
  for (const auto& [fused, sharding] : {std::pair{"fused", Sharding::none},
                                        {"zero1", Sharding::zero1},
                                        {"zero2", Sharding::zero2}}) {
    if (name == fused) return std::make_unique<FusedMode>(workload, comm, options, sharding);
  }
  if (name == "reducer") {
    if (auto mode = make_reducer(workload, comm, options)) return mode;
    throw std::invalid_argument(
        "the mode 'reducer' was not built: Gloo's headers are missing (Debian: libgloo-dev)");
  }
  throw std::invalid_argument(
      "no mode '" + name +
      "': none, barrier, hocket, fused, zero1, zero2, dp, checkpointed or reducer");
}

}  // namespace lab
