// Batch normalisation over all ranks, against torch::nn::BatchNorm over the whole batch.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <hocket/training/torch/ddp.hpp>
#include <hocket/training/torch/sync_batch_norm.hpp>
#include <numeric>
#include <vector>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;
using torch::nn::BatchNormOptions;

std::shared_ptr<Communicator> own(Communicator& comm) {
  return std::make_shared<Communicator>(comm.duplicate());
}

at::Tensor data(std::vector<std::int64_t> sizes, at::ScalarType type) {
  const std::int64_t count =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  return (torch::sin(torch::arange(count, torch::kDouble) * 0.7) * 3 + 1).view(sizes).to(type);
}

/// A rank's samples of the whole batch.
at::Tensor own_samples(const at::Tensor& all, const std::vector<std::int64_t>& counts, int rank) {
  const auto begin = std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
  return all.narrow(0, begin, counts[static_cast<std::size_t>(rank)]);
}

struct Case {
  std::vector<std::int64_t> counts;  // samples of each rank
  std::vector<std::int64_t> sizes;   // of a sample
  at::ScalarType type = at::kFloat;
  BatchNormOptions options = BatchNormOptions(3);
  double tolerance = 1e-5;
};

template <typename Norm>
void expect_parity(const Case& each) {
  std::vector<std::int64_t> sizes = each.sizes;
  sizes.insert(sizes.begin(),
               std::accumulate(each.counts.begin(), each.counts.end(), std::int64_t{0}));
  const int ranks = static_cast<int>(each.counts.size());
  Norm whole(each.options);
  std::vector<at::Tensor> inputs, outputs;
  for (int step = 0; step < 3; ++step) {
    inputs.push_back((data(sizes, at::kDouble) * (step + 1)).to(each.type).requires_grad_());
    const auto wide = each.type == at::kDouble ? at::kDouble : at::kFloat;
    whole->to(wide);
    outputs.push_back(whole(inputs.back().to(wide)));
    (outputs.back() * torch::cos(data(sizes, wide))).sum().backward();
  }
  std::mutex mutex;
  std::vector<at::Tensor> weight_sums(2);
  run_ranks(ranks, [&](Communicator& comm) {
    SyncBatchNorm norm(each.options, own(comm));
    if (each.type == at::kDouble) norm->to(at::kDouble);
    const auto mine = [&](const at::Tensor& all) {
      return own_samples(all, each.counts, comm.rank());
    };
    const auto expect_close = [&](const at::Tensor& a, const at::Tensor& b) {
      EXPECT_TRUE(torch::allclose(a.to(b.scalar_type()), b, each.tolerance, each.tolerance))
          << each.sizes << ' ' << each.type << ' ' << comm.rank() << '\n'
          << a << '\n'
          << b;
    };
    for (std::size_t step = 0; step < inputs.size(); ++step) {
      const at::Tensor x = mine(inputs[step].detach()).clone().requires_grad_();
      const at::Tensor y = norm(x);
      EXPECT_EQ(y.scalar_type(), each.type);
      expect_close(y, mine(outputs[step]));
      (y * torch::cos(mine(data(sizes, y.scalar_type())))).sum().backward();
      expect_close(x.grad(), mine(inputs[step].grad()));
    }
    if (norm->weight.defined()) {
      const std::lock_guard lock(mutex);
      for (const int i : {0, 1}) {
        const at::Tensor grad = norm->parameters()[static_cast<std::size_t>(i)].grad();
        auto& sum = weight_sums[static_cast<std::size_t>(i)];
        sum = sum.defined() ? sum + grad : grad.clone();
      }
    }
    for (std::size_t i = 0; i < norm->buffers().size(); ++i) {
      expect_close(norm->buffers()[i], whole->buffers()[i]);
      at::Tensor bits = norm->buffers()[i].to(at::kDouble).clone(), root = bits.clone();
      comm.broadcast(
          std::span(root.mutable_data_ptr<double>(), static_cast<std::size_t>(root.numel())), 0);
      EXPECT_TRUE(torch::equal(bits, root));
    }
    norm->eval();
    const torch::NoGradGuard no_grad;
    const at::Tensor x = mine(inputs[0]);
    if (x.numel() > 0 && norm->running_mean.defined() && each.type != at::kBFloat16) {
      expect_close(norm(x),
                   at::batch_norm(x, whole->weight, whole->bias, whole->running_mean,
                                  whole->running_var, false, 0, whole->options.eps(), false));
    }
  });
  const double near = std::max(10 * each.tolerance, 1e-9);
  for (std::size_t i = 0; i < 2 && weight_sums[0].defined(); ++i) {
    EXPECT_TRUE(torch::allclose(weight_sums[i], whole->parameters()[i].grad(), near, near))
        << each.type;
  }
}

TEST(SyncBatchNorm, has_the_values_of_one_process_with_the_whole_batch) {
  expect_parity<torch::nn::BatchNorm1d>({.counts = {4, 4}, .sizes = {3}});
  expect_parity<torch::nn::BatchNorm1d>({.counts = {3, 5, 1}, .sizes = {3, 4}});
  expect_parity<torch::nn::BatchNorm2d>({.counts = {2, 0, 3}, .sizes = {3, 2, 5}});
  expect_parity<torch::nn::BatchNorm3d>({.counts = {1, 1}, .sizes = {3, 2, 2, 3}});
  expect_parity<torch::nn::BatchNorm1d>(
      {.counts = {2, 3}, .sizes = {3}, .type = at::kDouble, .tolerance = 1e-12});
  expect_parity<torch::nn::BatchNorm1d>(
      {.counts = {4, 3}, .sizes = {3}, .type = at::kBFloat16, .tolerance = 3e-2});
  expect_parity<torch::nn::BatchNorm1d>(
      {.counts = {2, 3}, .sizes = {3}, .options = BatchNormOptions(3).affine(false)});
  expect_parity<torch::nn::BatchNorm1d>(
      {.counts = {2, 3}, .sizes = {3}, .options = BatchNormOptions(3).track_running_stats(false)});
  expect_parity<torch::nn::BatchNorm1d>(
      {.counts = {2, 3}, .sizes = {3}, .options = BatchNormOptions(3).momentum(std::nullopt)});
}

TEST(SyncBatchNorm, a_wrong_input_of_one_rank_is_an_error_on_all) {
  run_ranks(3, [](Communicator& comm) {
    SyncBatchNorm norm(BatchNormOptions(3), own(comm));
    const auto refused = [&](const at::Tensor& wrong) {
      const at::Tensor x = comm.rank() == 1 ? wrong : data({4, 3}, at::kFloat);
      return message_of<InvalidArgument>([&] { norm(x); });
    };
    const auto expect = [&](const at::Tensor& wrong, const std::string& own) {
      const std::string message = refused(wrong);
      EXPECT_NE(message.find(comm.rank() == 1 ? own : "the input of rank 1 cannot be normalised"),
                std::string::npos)
          << message;
    };
    expect(data({4, 2}, at::kFloat), "has the sizes [4, 2]: samples x 3 features");
    expect(data({3}, at::kFloat), "has the sizes [3]:");
    expect(torch::ones({4, 3}, torch::kLong), "has the type Long");
    EXPECT_NE(message_of<InvalidArgument>([&] {
                norm(data({comm.rank() == 2 ? 1 : 0, 3}, at::kFloat));
              }).find("together have 1 values"),
              std::string::npos);
    EXPECT_TRUE(norm(data({4, 3}, at::kFloat)).defined());  // goes on to work
  });
}

TEST(SyncBatchNorm, takes_part_in_data_parallel_training) {
  const auto build = [](std::shared_ptr<Communicator> comm) {
    torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6), torch::nn::ReLU(),
                              torch::nn::Linear(6, 2));
    net->to(at::kDouble);
    if (comm != nullptr) {
      EXPECT_EQ(convert_sync_batchnorm(*net, comm), 1);
    }
    return net;
  };
  torch::nn::Sequential reference = build(nullptr);
  const auto initial = reference->parameters();
  const at::Tensor batch = data({8, 4}, at::kDouble);
  std::vector<at::Tensor> expected;
  {
    torch::optim::SGD optimizer(reference->parameters(), 0.1);
    for (const at::Tensor& p : initial) expected.push_back(p.detach().clone());
  }
  std::vector<at::Tensor> start = expected;
  torch::optim::SGD optimizer(reference->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    reference->forward(batch).square().mean().backward();
    optimizer.step();
  }
  run_ranks(2, [&](Communicator& comm) {
    torch::nn::Sequential net = build(own(comm));
    const auto parameters = net->parameters();
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < start.size(); ++i) parameters[i].copy_(start[i]);
    }
    DistributedDataParallel ddp(*net, comm);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      ddp.run([&] { return net->forward(batch.narrow(0, 4 * comm.rank(), 4)); })
          .square()
          .mean()
          .backward();
      optimizer.step();
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i], reference->parameters()[i], 1e-10, 1e-10)) << i;
    }
  });
}

struct Stage : torch::nn::Module {
  explicit Stage(torch::nn::BatchNorm1d norm) {
    inner->push_back("norm", norm);
    register_module("inner", inner);
  }
  at::Tensor forward(const at::Tensor& x) { return inner->forward(x); }
  torch::nn::Sequential inner;
};
struct Nested : torch::nn::Module {
  Nested() {
    outer->push_back(torch::nn::Linear(3, 3));
    outer->push_back(stage);
    outer->push_back("again", shared);
    register_module("outer", outer);
  }
  torch::nn::BatchNorm1d shared{BatchNormOptions(3).eps(0.5)};
  std::shared_ptr<Stage> stage = std::make_shared<Stage>(shared);
  torch::nn::Sequential outer;
};
struct WithMember : torch::nn::Module {
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(3));
  torch::nn::Sequential rest =
      register_module("rest", torch::nn::Sequential(torch::nn::BatchNorm1d(3)));
};

TEST(SyncBatchNorm, replaces_batch_norms_in_sequentials_with_their_tensors) {
  run_ranks(2, [](Communicator& comm) {
    Nested net;
    net.shared->eval();
    const auto before = net.named_parameters();
    EXPECT_EQ(convert_sync_batchnorm(net, own(comm)), 2);
    const auto after = net.named_parameters();
    EXPECT_EQ(before.keys(), after.keys());
    for (const auto& each : before) EXPECT_TRUE(after[each.key()].is_same(each.value()));
    auto* const inner = net.stage->inner[0]->as<SyncBatchNormImpl>();
    ASSERT_NE(inner, nullptr);
    EXPECT_EQ(net.outer[2].get(), inner);  // one module at two places stays one
    EXPECT_EQ(inner->options.eps(), 0.5);
    EXPECT_FALSE(inner->is_training());
    net.train();
    const at::Tensor y = net.outer->forward(data({2, 3}, at::kFloat) + comm.rank());  // calls it
    EXPECT_EQ(inner->num_batches_tracked.item<std::int64_t>(), 2);
    const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(inner->clone());
    EXPECT_TRUE(torch::equal(copy->running_mean, inner->running_mean));
    EXPECT_FALSE(copy->weight.is_same(inner->weight));
  });
}

TEST(SyncBatchNorm, a_member_that_cpp_cannot_replace_is_named_and_nothing_changes) {
  run_ranks(1, [](Communicator& comm) {
    WithMember net;
    const std::string message =
        message_of<InvalidArgument>([&] { convert_sync_batchnorm(net, own(comm)); });
    EXPECT_NE(message.find("the BatchNorm of norm cannot be replaced"), std::string::npos)
        << message;
    EXPECT_EQ(net.rest[0]->as<SyncBatchNormImpl>(), nullptr);
    torch::nn::BatchNorm1d alone(3);
    EXPECT_NE(message_of<InvalidArgument>([&] { convert_sync_batchnorm(*alone, own(comm)); }), "");
  });
}

}  // namespace
}  // namespace hocket::training
