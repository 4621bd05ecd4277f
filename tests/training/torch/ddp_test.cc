// DistributedDataParallel over modules as users write them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <hocket/training/torch/ddp.hpp>
#include <vector>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

struct Mlp : torch::nn::Module {
  explicit Mlp(int layers = 3, int width = 16) {
    for (int i = 0; i < layers; ++i) {
      linears.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(width, width)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& linear : linears) x = torch::relu(linear->forward(x));
    return x;
  }
  std::vector<torch::nn::Linear> linears;
};

at::Tensor batch_of(int rank, int step) {
  const at::Tensor base = torch::arange(4 * 16, torch::kFloat).view({4, 16});
  return torch::sin(base * (0.1 + 0.01 * step) + rank);
}

/// The gradients of a process that adds up the halves of the ranks and divides by their number.
std::vector<at::Tensor> reference_gradients(Mlp& net, int ranks, int step) {
  net.zero_grad();
  for (int rank = 0; rank < ranks; ++rank)
    net.forward(batch_of(rank, step)).square().sum().backward();
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : net.parameters()) all.push_back(p.grad().clone() / ranks);
  return all;
}

TEST(Ddp, gradients_of_two_ranks_have_the_bits_of_one_process_that_accumulates) {
  Mlp reference;
  run_ranks(2, [&](Communicator& comm) {
    Mlp net;
    {
      const torch::NoGradGuard no_grad;
      const auto from = reference.parameters();
      const auto to = net.parameters();
      for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    }
    DistributedDataParallel ddp(net, comm);
    for (int step = 0; step < 4; ++step) {
      net.zero_grad();
      ddp.run([&] { return net.forward(batch_of(comm.rank(), step)); }).square().sum().backward();
      comm.barrier();
      if (comm.rank() == 0) {
        const auto expected = reference_gradients(reference, 2, step);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(torch::equal(net.parameters()[i].grad(), expected[i])) << step << ' ' << i;
        }
      }
      comm.barrier();
    }
  });
}

}  // namespace
}  // namespace hocket::training
