// A training loop of one process, as libtorch users write it. 12_plain_loop.diff makes it
// distributed; the tests apply it, and run both. Run: example_12_plain_loop FILE
#include <torch/torch.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(8, 64));
    out = register_module("out", torch::nn::Linear(64, 3));
  }
  torch::Tensor forward(torch::Tensor x) { return out(torch::relu(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(Net);

constexpr int samples = 3000, batch_size = 60, epochs = 4;

/// Samples of three classes: points around three centers.
std::pair<torch::Tensor, torch::Tensor> dataset() {
  const auto labels = torch::arange(samples) % 3;
  const auto centers = torch::tensor({-1.0f, 0.0f, 1.0f}).index_select(0, labels).unsqueeze(1);
  return {centers + 0.5 * torch::randn({samples, 8}), labels};
}

int main(int argc, char** argv) {
  torch::manual_seed(1);
  at::set_num_threads(1);
  const auto [inputs, labels] = dataset();
  Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  double loss_of_epoch = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto order = torch::randperm(samples);
    loss_of_epoch = 0;
    int batches = 0;
    for (int at = 0; at + batch_size <= samples; at += batch_size) {
      const auto batch = order.slice(0, at, at + batch_size);
      optimizer.zero_grad();
      const auto output = net->forward(inputs.index_select(0, batch));
      const auto loss = torch::cross_entropy_loss(output, labels.index_select(0, batch));
      loss.backward();
      optimizer.step();
      loss_of_epoch += loss.item<double>();
      ++batches;
    }
    loss_of_epoch /= batches;
    std::printf("epoch %d: loss %.4f\n", epoch, loss_of_epoch);
  }
  if (argc > 1) torch::save(net, argv[1]);
  return loss_of_epoch < 0.3 ? 0 : 1;
}
