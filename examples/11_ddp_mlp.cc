// A libtorch module trained by several ranks: each has a replica and batches of its own, and the
// gradients are averaged while backward computes. Run: hocket-run -n 2 example_11_ddp_mlp
#include <torch/torch.h>

#include <cstdio>
#include <hocket/training/torch/ddp.hpp>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(2, 64));
    out = register_module("out", torch::nn::Linear(64, 1));
  }
  torch::Tensor forward(torch::Tensor x) { return out(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(Net);

int main() {
  try {
    auto comm = hocket::Communicator::from_environment({.name = "training"});
    torch::manual_seed(comm.rank());  // other batches on each rank
    at::set_num_threads(1);           // else the ranks of a host share its cores badly
    Net net;
    hocket::training::DistributedDataParallel ddp(*net, comm);  // weights are those of rank 0 now
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    double first = 0, last = 0;
    for (int step = 0; step < 300; ++step) {
      const auto x = torch::rand({64, 2}) * 2 - 1;
      const auto y = (x.select(1, 0) * x.select(1, 1)).unsqueeze(1);  // to learn: a product
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(ddp(net, x), y);
      loss.backward();
      optimizer.step();
      last = comm.all_reduce(loss.item<double>(), hocketAvg);
      if (step == 0) first = last;
    }
    if (comm.rank() == 0) std::printf("loss of all ranks: %g at first, %g at last\n", first, last);
    return last < 0.1 * first ? 0 : 1;
  } catch (const hocket::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
