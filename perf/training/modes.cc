#include "modes.h"

#include <torch/csrc/autograd/engine.h>

#include <hocket/training/torch/ddp.hpp>
#include <stdexcept>

namespace lab {
namespace {

hocket::training::BucketLimits limits(const ModeOptions& options) {
  hocket::training::BucketLimits limits;
  limits.bytes = static_cast<std::size_t>(options.bucket_mb * (1 << 20));
  limits.first_bytes = std::min(limits.first_bytes, limits.bytes);
  return limits;
}

class HocketMode final : public Mode {
 public:
  HocketMode(const Workload& workload, hocket::Communicator& comm, const ModeOptions& options)
      : Mode(workload), ddp_(model(), comm, {.limits = limits(options)}) {}
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

 private:
  hocket::training::DistributedDataParallel ddp_;
};

}  // namespace

Mode::Mode(const Workload& workload) : model_(make_model(workload)) {
  if (workload.adamw) {
    optimizer_ = std::make_unique<torch::optim::AdamW>(model_->parameters(),
                                                       torch::optim::AdamWOptions(3e-4));
  } else {
    optimizer_ =
        std::make_unique<torch::optim::SGD>(model_->parameters(), torch::optim::SGDOptions(0.01));
  }
}

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
  if (name == "hocket") return std::make_unique<HocketMode>(workload, comm, options);
  if (name == "reducer") {
    if (auto mode = make_reducer(workload, comm, options)) return mode;
    throw std::invalid_argument(
        "the mode 'reducer' was not built: Gloo's headers are missing (Debian: libgloo-dev)");
  }
  throw std::invalid_argument("no mode '" + name + "': none, hocket or reducer");
}

}  // namespace lab
