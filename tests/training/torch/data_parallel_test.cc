// Replicas of a module in the threads of one process.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <hocket/training/torch/autocast.hpp>
#include <hocket/training/torch/data_parallel.hpp>
#include <set>
#include <thread>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;

struct RegressionImpl : torch::nn::Cloneable<RegressionImpl> {
  RegressionImpl() { RegressionImpl::reset(); }
  void reset() override {
    in = register_module("in", torch::nn::Linear(4, 6));
    out = register_module("out", torch::nn::Linear(6, 2));
    unused = register_module("unused", torch::nn::Linear(6, 2));
    calls = register_buffer("calls", torch::zeros({}));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    const torch::NoGradGuard no_grad;
    calls += 1;
    const torch::AutoGradMode with_gradients(gradients);
    return out(torch::relu(in(x)));
  }
  bool gradients = true;
  torch::nn::Linear in{nullptr}, out{nullptr}, unused{nullptr};
  at::Tensor calls;
};
TORCH_MODULE(Regression);

at::Tensor rows(int count, int width) {
  return torch::sin(torch::arange(count * width, torch::kDouble)).view({count, width});
}
at::Tensor squares(RegressionImpl& net, const at::Tensor& x, const at::Tensor& y) {
  return torch::mse_loss(net.forward(x), y);
}

TEST(DataParallel, gives_the_gradients_and_the_loss_of_the_whole_batch) {
  for (const int replicas : {1, 2, 3, 5}) {
    for (const int count : {1, 3, 7, 12}) {
      for (const bool mean : {true, false}) {
        Regression net, whole(std::dynamic_pointer_cast<RegressionImpl>(net->clone()));
        const at::Tensor x = rows(count, 4), y = rows(count, 2) * 0.5;
        DataParallel parallel(net, replicas);
        parallel.set_loss_is_mean(mean);
        const auto loss = [mean](RegressionImpl& net, const at::Tensor& x, const at::Tensor& y) {
          const at::Tensor differences = (net.forward(x) - y).square();
          return mean ? differences.mean() : differences.sum();
        };
        torch::optim::SGD optimizers[] = {torch::optim::SGD(net->parameters(), 0.1),
                                          torch::optim::SGD(whole->parameters(), 0.1)};
        for (int step = 0; step < 3; ++step) {
          for (int backwards = 0; backwards < 2; ++backwards) {  // gradients add up
            const at::Tensor expected = loss(*whole, x, y);
            expected.backward();
            EXPECT_TRUE(torch::allclose(parallel.backward(loss, x, y), expected));
          }
          EXPECT_FALSE(net->unused->weight.grad().defined());
          for (auto& optimizer : optimizers) {
            optimizer.step();
            optimizer.zero_grad();
          }
        }
        for (std::size_t i = 0; i < net->parameters().size(); ++i) {
          EXPECT_TRUE(torch::allclose(net->parameters()[i], whole->parameters()[i]))
              << replicas << ' ' << count << ' ' << i;
        }
        EXPECT_EQ(net->calls.item<double>(), 6);  // its own part only
      }
    }
  }
}

TEST(DataParallel, forward_puts_the_rows_together_without_gradients) {
  Regression net;
  DataParallel parallel(net, 3);
  const at::Tensor x = rows(7, 4);
  const at::Tensor y = parallel.forward(
      [](RegressionImpl& net, const at::Tensor& x) {
        net.gradients = torch::GradMode::is_enabled();
        return net.forward(x);
      },
      x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(torch::allclose(y, net->forward(x)));
}

TEST(DataParallel, parts_run_in_threads_with_the_state_of_the_caller) {
  Regression net;
  DataParallel parallel(net, 3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const AutocastGuard autocast(at::kHalf);
  net->eval();
  parallel.forward(
      [&](RegressionImpl& net, const at::Tensor& x) {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        EXPECT_TRUE(AutocastState::current().enabled);
        EXPECT_EQ(AutocastState::current().dtype, at::kHalf);
        EXPECT_FALSE(net.is_training());
        return x;
      },
      rows(3, 4));
  EXPECT_EQ(threads.size(), 3u);
}

/// Cannot be cloned.
struct Plain : torch::nn::Module {
  explicit Plain(int width = 3) : layer(register_module("layer", torch::nn::Linear(width, 1))) {}
  torch::nn::Linear layer;
};

TEST(DataParallel, a_factory_makes_replicas_of_modules_that_have_no_clone) {
  const auto root = std::make_shared<Plain>();
  EXPECT_NE(message_of<c10::Error>([&] { DataParallel<Plain>(root, 2); }).find("clone"),
            std::string::npos);
  DataParallel<Plain> parallel(root, 2, [] { return std::make_shared<Plain>(); });
  const at::Tensor x = torch::ones({4, 3});
  parallel.backward([](Plain& net, const at::Tensor& x) { return net.layer(x).mean(); }, x);
  EXPECT_TRUE(torch::allclose(root->layer->weight.grad(), torch::ones({1, 3})));
  EXPECT_NE(message_of<InvalidArgument>([&] {
              DataParallel<Plain>(root, 2, [] { return std::make_shared<Plain>(5); });
            }).find("replica 1 differs from the root: its 'layer.weight' has other sizes"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              DataParallel<Plain>(root, 2, [&] { return root; });
            }).find("is that of the root itself"),
            std::string::npos);
}

TEST(DataParallel, wrong_batches_and_the_errors_of_replicas_are_thrown) {
  Regression net;
  DataParallel parallel(net, 2);
  EXPECT_THROW(DataParallel(net, 0), InvalidArgument);
  EXPECT_NE(
      message_of<InvalidArgument>([&] { parallel.backward(squares, rows(4, 4), rows(3, 2)); }), "");
  EXPECT_NE(
      message_of<InvalidArgument>([&] { parallel.backward(squares, rows(0, 4), rows(0, 2)); }), "");
  const auto fails = [](RegressionImpl&, const at::Tensor& x) -> at::Tensor {
    if (x.size(0) == 1) throw std::runtime_error("the second part");
    return x;
  };
  EXPECT_EQ(message_of<std::runtime_error>([&] { parallel.forward(fails, rows(3, 4)); }),
            "the second part");
  EXPECT_TRUE(parallel.backward(squares, rows(4, 4), rows(4, 2)).defined());  // goes on to work
}

}  // namespace
}  // namespace hocket::training
