// Modules and batches of the adapter's tests.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tests {

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

/// 4 rows of 16 numbers, different for each rank and step.
inline at::Tensor batch_of(int rank, int step) {
  const at::Tensor base = torch::arange(4 * 16, torch::kFloat).view({4, 16});
  return torch::sin(base * (0.1 + 0.01 * step) + rank);
}

inline void copy_model(const torch::nn::Module& from, torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  const auto source = from.parameters(), target = to.parameters();
  for (std::size_t i = 0; i < target.size(); ++i) target[i].copy_(source[i]);
}

}  // namespace tests
