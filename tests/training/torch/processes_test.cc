// The adapter with ranks in processes: hocket-run starts this program several times (see
// CMakeLists.txt). Without hocket-run there is one rank.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <hocket/training/loss_scaler.hpp>
#include <hocket/training/torch/activation_checkpoint.hpp>
#include <hocket/training/torch/autocast.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <hocket/training/torch/sync_batch_norm.hpp>

namespace hocket::training {
namespace {

/// With a checkpointed part that has random numbers, and a norm over all ranks.
struct Deep : torch::nn::Module {
  explicit Deep(std::shared_ptr<Communicator> norms)
      : norm(register_module("norm",
                             SyncBatchNorm(torch::nn::BatchNormOptions(12), std::move(norms)))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = checkpoint(
        {.name = "in"},
        [this](const at::Tensor& x) {
          return torch::dropout(torch::relu(in(x)), 0.1, is_training());
        },
        x);
    return out(norm(y));
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 12));
  SyncBatchNorm norm;
  torch::nn::Linear out = register_module("out", torch::nn::Linear(12, 1));
};

TEST(ProcessesTorch, learn_with_checkpointing_sync_batch_norm_autocast_and_a_loss_scaler) {
  at::set_num_threads(1);
  Communicator comm = Communicator::from_environment();
  torch::manual_seed(100 + static_cast<std::uint64_t>(comm.rank()));  // other random numbers
  Deep net(std::make_shared<Communicator>(comm.duplicate()));
  DistributedDataParallel ddp(net, comm, {.on_non_finite = OnNonFinite::keep});
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(0.02));
  LossScaler scaler({.initial_scale = 1024, .growth_interval = 10});
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    const at::Tensor x = torch::randn({16, 6});
    const at::Tensor target = (x.sum(1, true) > 0).to(torch::kFloat);
    optimizer.zero_grad();
    at::Tensor output;
    {
      const AutocastGuard autocast(at::kBFloat16);
      output = ddp.run([&] { return net.forward(x); });
    }
    const at::Tensor loss =
        torch::binary_cross_entropy_with_logits(output.to(torch::kFloat), target);
    (loss * scaler.scale()).backward();
    if (scaler.unscale(ddp.reducer())) optimizer.step();
    scaler.update();
    (step == 0 ? first : last) = comm.all_reduce(loss.item<double>(), hocketAvg);
  }
  EXPECT_LT(last, 0.7 * first);
  EXPECT_EQ(scaler.scale(), 1024 * 16);
  for (const auto* list : {"parameters", "buffers"}) {
    for (const at::Tensor& each :
         std::string(list) == "buffers" ? net.buffers() : net.parameters()) {
      const at::Tensor values = each.detach().to(torch::kDouble).contiguous().clone();
      at::Tensor root = values.clone();
      comm.broadcast(
          std::span(root.mutable_data_ptr<double>(), static_cast<std::size_t>(root.numel())), 0);
      EXPECT_TRUE(torch::equal(values, root)) << list;
    }
  }
}

}  // namespace
}  // namespace hocket::training
