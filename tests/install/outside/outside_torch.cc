// Trains a linear layer on every rank's own data, from an installed tree.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>
#include <hocket/training/torch/ddp.hpp>

int main() {
  hocket::Communicator comm = hocket::Communicator::from_environment();
  torch::manual_seed(comm.rank());
  torch::nn::Linear net(4, 1);
  hocket::training::DistributedDataParallel ddp(*net, comm);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  float first = 0, last = 0;
  for (int step = 0; step < 50; ++step) {
    const at::Tensor x = torch::randn({32, 4});
    optimizer.zero_grad();
    const at::Tensor loss = (ddp(net, x) - x.sum(1, true)).square().mean();
    loss.backward();
    optimizer.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  std::printf("rank %d: loss %g, then %g\n", comm.rank(), static_cast<double>(first),
              static_cast<double>(last));
  return last < first / 10 ? 0 : 1;
}
