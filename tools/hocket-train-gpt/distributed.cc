// Learners whose ranks train one model together: ddp, zero1, zero2.
#include <algorithm>
#include <hocket/training/clip.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <hocket/training/torch/zero.hpp>
#include <iterator>
#include <optional>
#include <utility>

#include "with_model.h"

namespace hocket::gpt {
namespace {

using training::Phase;
using training::ShardedAdamW;
using training::Sharding;
using training::StepRecorder;
using training::TensorRange;
using TorchAdamW = training::ShardedOptimizer<torch::optim::AdamW>;

void make(std::unique_ptr<ShardedAdamW>* optimizer, training::DistributedDataParallel& ddp,
          double weight_decay) {
  training::AdamWOptions decaying, other;
  decaying.weight_decay = weight_decay;
  other.weight_decay = 0;
  *optimizer = std::make_unique<ShardedAdamW>(
      ddp.parameters(), other, std::vector<training::AdamWGroup>{{decays, decaying}});
}
void set_learning_rate(ShardedAdamW& optimizer, double rate) { optimizer.set_learning_rate(rate); }

void make(std::unique_ptr<TorchAdamW>* optimizer, training::DistributedDataParallel& ddp,
          double weight_decay) {
  using TorchOptions = torch::optim::AdamWOptions;
  *optimizer =
      std::make_unique<TorchAdamW>(ddp, TorchOptions().weight_decay(0),
                                   std::vector<training::OptimizerGroup<TorchOptions>>{
                                       {decays, TorchOptions().weight_decay(weight_decay)}});
}
void set_learning_rate(TorchAdamW& optimizer, double rate) {
  for (auto& group : optimizer.optimizer().param_groups()) group.options().set_lr(rate);
}

template <typename Optimizer>
class Distributed : public WithModel {
 public:
  Distributed(const Options& options, Communicator& comm, Sharding sharding)
      : WithModel(options), ddp_(*model_, comm, ddp_options(sharding)) {
    make(&optimizer_, ddp_, options.weight_decay);
  }

  double learn(Windows windows, double weight, bool last, StepRecorder& recorder) override {
    recorder.enter(Phase::forward);
    std::optional<training::DistributedDataParallel::NoSync> alone;
    if (!last) alone.emplace(ddp_.no_sync());
    const at::Tensor result = ddp_.run([&] { return loss(windows); });
    recorder.enter(Phase::backward);
    (result * weight).backward();
    if (last) recorder.add(ddp_.reducer().last_timings());
    recorder.enter(Phase::other);
    return result.item<double>();
  }
  double step(double learning_rate, double largest_norm, StepRecorder& recorder) override {
    recorder.enter(Phase::optimizer);
    const double norm = finite_norm(
        [this] { return training::gradient_norm(ddp_.reducer(), {.error_if_nonfinite = true}); });
    set_learning_rate(*optimizer_, learning_rate);
    training::StepOptions options;
    if (largest_norm > 0) options.gradient_scale = training::clip_factor(norm, largest_norm);
    optimizer_->step(options);
    model_->zero_grad();
    recorder.add(ddp_.parameters().last_timings());
    recorder.enter(Phase::other);
    return norm;
  }
  std::vector<TensorRange> ranges() override {
    std::vector<TensorRange> all = ddp_.parameters().ranges();
    for (TensorRange& range : all) range.tensor.name.insert(0, "parameter/");
    std::ranges::move(optimizer_->state(), std::back_inserter(all));
    return all;
  }
  std::int64_t steps() override { return optimizer_->steps(); }
  void set_steps(std::int64_t steps) override { optimizer_->set_steps(steps); }
  void loaded() override { ddp_.parameters().gather(); }

 private:
  static training::DdpOptions ddp_options(Sharding sharding) {
    training::DdpOptions options;
    options.sharding = sharding;
    // A loss that is not finite is said before the gradients; step() refuses both.
    options.on_non_finite = training::OnNonFinite::keep;
    return options;
  }

  training::DistributedDataParallel ddp_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

std::unique_ptr<Learner> make_distributed(const Options& options, Communicator& comm) {
  const Sharding sharding = options.strategy == Strategy::zero1   ? Sharding::zero1
                            : options.strategy == Strategy::zero2 ? Sharding::zero2
                                                                  : Sharding::none;
  if (options.torch_optimizer) {
    return std::make_unique<Distributed<TorchAdamW>>(options, comm, sharding);
  }
  return std::make_unique<Distributed<ShardedAdamW>>(options, comm, sharding);
}

}  // namespace hocket::gpt
