// ZeRO-1 and ZeRO-2 over modules as users write them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <hocket/training/clip.hpp>
#include <hocket/training/torch/zero.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "training/ranks.h"
#include "training/torch/models.h"

namespace {

/// Scales its steps by the norm of the whole parameter's gradient.
class NormScaled : public torch::optim::Optimizer {
 public:
  NormScaled(const std::vector<torch::optim::OptimizerParamGroup>& groups,
             const torch::optim::SGDOptions& options)
      : Optimizer(groups, std::make_unique<torch::optim::SGDOptions>(options)) {}
  at::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (at::Tensor& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        shapes.push_back(parameter.sizes().vec());
        parameter.sub_(parameter.grad(), 0.05 / (1 + parameter.grad().norm().item<double>()));
      }
    }
    return {};
  }
  std::vector<std::vector<std::int64_t>> shapes;
};

/// Treats elements alone, and says so below.
class PlainStep : public torch::optim::Optimizer {
 public:
  PlainStep(const std::vector<torch::optim::OptimizerParamGroup>& groups,
            const torch::optim::SGDOptions& options)
      : Optimizer(groups, std::make_unique<torch::optim::SGDOptions>(options)) {}
  at::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (at::Tensor& parameter : group.params()) {
        if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.05);
      }
    }
    return {};
  }
};

}  // namespace

template <>
struct hocket::training::OptimizerTraits<PlainStep> {
  static constexpr bool elementwise = true;
};

namespace hocket::training {
namespace {

using tests::batch_of;
using tests::copy_model;
using tests::message_of;
using tests::Mlp;
using tests::run_ranks;

constexpr BucketLimits small_buckets{.first_bytes = 200, .bytes = 1500};
constexpr Sharding all_shardings[] = {Sharding::none, Sharding::zero1, Sharding::zero2};

/// Tied, transposed and frozen parameters, two types, a buffer, and one parameter that some
/// forwards do not use.
struct Mixed : torch::nn::Module {
  Mixed() {
    torch::NoGradGuard no_grad;
    const auto number = [](std::int64_t count) {
      return torch::sin(torch::arange(count, torch::kFloat) * 0.7);
    };
    tied = register_parameter("tied", number(16 * 16).view({16, 16}) * 0.3);
    register_parameter("again", tied);
    transposed = register_parameter("transposed", (number(7 * 16) * 0.3).view({7, 16}).t());
    wide = register_parameter("wide", number(7).to(torch::kDouble));
    frozen = register_parameter("frozen", number(16), false);
    // A part of a larger storage that nobody else uses.
    extra = torch::empty({0}).set_(number(40).storage(), 5, {33}, {1});
    register_parameter("extra", extra);
    scalar = register_parameter("scalar", torch::tensor(0.5f));
    register_buffer("calls", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x, bool with_extra = true) {
    at::Tensor y = torch::tanh(x.matmul(tied) + frozen).matmul(tied.t());
    y = y.matmul(transposed).to(torch::kDouble) * wide * scalar;
    return with_extra ? y + extra.sum() : y;
  }
  at::Tensor tied, transposed, wide, frozen, extra, scalar;
};

std::vector<at::Tensor> values_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : module.parameters()) {
    values.push_back(parameter.detach().clone());
  }
  return values;
}
bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return torch::equal(x, y); });
}

/// What every rank has after some steps.
template <typename Train>
std::vector<at::Tensor> train(int ranks, Train train_on_rank) {
  std::vector<std::vector<at::Tensor>> of_ranks(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    at::set_num_threads(1);
    of_ranks[static_cast<std::size_t>(comm.rank())] = train_on_rank(comm);
  });
  for (const auto& each : of_ranks) EXPECT_TRUE(equal(each, of_ranks[0])) << "ranks differ";
  return of_ranks[0];
}

std::vector<at::Tensor> train_with_our_adamw(Communicator& comm, Sharding sharding, ShardCut cut,
                                             int steps) {
  Mixed net;
  DistributedDataParallel ddp(net, comm,
                              {.limits = small_buckets, .sharding = sharding, .cut = cut});
  ShardedAdamW optimizer(ddp.parameters(), {.learning_rate = 0.01});
  for (int step = 0; step < steps; ++step) {
    net.zero_grad();
    ddp.run([&] { return net.forward(batch_of(comm.rank(), step)); }).square().sum().backward();
    optimizer.step();
  }
  return values_of(net);
}

TEST(Zero, has_the_bits_of_ddp_with_our_adamw_on_two_ranks) {
  const auto expected = train(2, [](Communicator& comm) {
    return train_with_our_adamw(comm, Sharding::none, ShardCut::elements, 6);
  });
  EXPECT_FALSE(equal(expected, values_of(Mixed())));
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    for (const ShardCut cut : {ShardCut::elements, ShardCut::parameters}) {
      EXPECT_TRUE(equal(expected, train(2, [&](Communicator& comm) {
                          return train_with_our_adamw(comm, sharding, cut, 6);
                        })));
    }
  }
}

/// With ranks in processes: see CMakeLists.txt.
TEST(ProcessesTorch, have_with_sharding_the_bits_of_ddp_with_our_adamw) {
  Communicator comm = Communicator::from_environment();
  at::set_num_threads(1);
  const auto expected = train_with_our_adamw(comm, Sharding::none, ShardCut::elements, 4);
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    EXPECT_TRUE(equal(expected, train_with_our_adamw(comm, sharding, ShardCut::elements, 4)));
  }
}

/// Rank r has r batches in the first epoch and r + 1 in the second.
template <typename MakeOptimizer>
std::vector<at::Tensor> train_uneven(Communicator& comm, Sharding sharding, bool by_active,
                                     double max_norm, MakeOptimizer make_optimizer) {
  Mixed net;
  DistributedDataParallel ddp(net, comm, {.limits = small_buckets, .sharding = sharding});
  auto optimizer = make_optimizer(ddp);
  int updates = 0;
  const auto update = [&] {
    if (max_norm > 0) clip_grad_norm(ddp.reducer(), max_norm);
    EXPECT_TRUE(optimizer->step({.skip_nonfinite = true}));
    net.zero_grad();
    ++updates;
  };
  for (const int extra : {0, 1}) {
    Join join = ddp.join({.divide_by_active = by_active, .update = update});
    for (int step = 0; step < comm.rank() + extra; ++step) {
      ddp.run([&] { return net.forward(batch_of(comm.rank(), step)); }).square().sum().backward();
      join.update();
    }
    join.finish();
  }
  EXPECT_EQ(updates, 2 * comm.ranks() - 1);
  return values_of(net);
}

TEST(Zero, of_ranks_with_fewer_batches_has_the_values_of_ddp_and_is_equal_on_all_ranks) {
  const auto our_adamw = [](DistributedDataParallel& ddp) {
    return std::make_unique<ShardedAdamW>(ddp.parameters(), AdamWOptions{.learning_rate = 0.01});
  };
  const auto their_sgd = [](DistributedDataParallel& ddp) {
    return std::make_unique<ShardedOptimizer<torch::optim::SGD>>(
        ddp, torch::optim::SGDOptions(0.1).momentum(0.9));
  };
  // With max_norm = 0 gradients are not clipped. The order of the sums in a norm depends on shards.
  const auto expect_parity = [](int ranks, bool by_active, double max_norm,
                                const auto& make_optimizer) {
    const auto train_with_sharding = [&](Sharding sharding) {
      return train(ranks, [&](Communicator& comm) {
        return train_uneven(comm, sharding, by_active, max_norm, make_optimizer);
      });
    };
    const auto expected = train_with_sharding(Sharding::none);
    EXPECT_FALSE(equal(expected, values_of(Mixed())));
    for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
      const auto values = train_with_sharding(sharding);
      for (std::size_t p = 0; p < values.size(); ++p) {
        EXPECT_TRUE(torch::allclose(values[p], expected[p], 1e-4, 1e-5)) << ranks << ' ' << p;
      }
      EXPECT_TRUE(max_norm > 0 || equal(values, expected)) << ranks;
    }
  };
  for (const bool by_active : {false, true}) {
    expect_parity(2, by_active, 0, our_adamw);
    expect_parity(3, by_active, 2, our_adamw);
    for (const int ranks : {2, 3}) expect_parity(ranks, by_active, 2, their_sgd);
  }
}

TEST(Zero, without_an_update_that_all_ranks_make_is_no_join) {
  run_ranks(2, [](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm, {.sharding = Sharding::zero2});
    EXPECT_NE(message_of<InvalidUsage>([&] {
                Join join = ddp.join();
              }).find("make it in JoinOptions::update"),
              std::string::npos);
  });
}

TEST(Zero, is_close_to_ddp_for_any_number_of_ranks) {
  for (const int ranks : {1, 3, 5}) {
    const auto expected = train(ranks, [](Communicator& comm) {
      return train_with_our_adamw(comm, Sharding::none, ShardCut::elements, 4);
    });
    for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
      const auto values = train(ranks, [&](Communicator& comm) {
        return train_with_our_adamw(comm, sharding, ShardCut::elements, 4);
      });
      for (std::size_t p = 0; p < values.size(); ++p) {
        EXPECT_TRUE(torch::allclose(values[p], expected[p], 1e-4, 1e-5)) << ranks << ' ' << p;
      }
    }
  }
}

/// The distance of a float32 number to the next one.
double unit(float value) {
  const float magnitude = std::abs(value);
  return static_cast<double>(std::nextafter(magnitude, 1e30f)) - magnitude;
}

TEST(Zero, our_adamw_differs_from_libtorchs_by_roundings_only) {
  at::set_num_threads(1);
  const std::int64_t count = 1003;
  const at::Tensor start = torch::sin(torch::arange(count, torch::kFloat));
  at::Tensor theirs = start.clone().requires_grad_();
  torch::optim::AdamW optimizer({theirs}, torch::optim::AdamWOptions(0.01));
  at::Tensor first = torch::zeros(count), second = torch::zeros(count);
  for (int step = 1; step <= 50; ++step) {
    const at::Tensor before = theirs.detach().clone();
    at::Tensor ours = before.clone();
    const at::Tensor gradient = torch::cos(torch::arange(count, torch::kFloat) * (0.3 + step));
    theirs.mutable_grad() = gradient.clone();
    if (step > 1) {  // from the same state
      const auto& state = static_cast<torch::optim::AdamWParamState&>(
          *optimizer.state()[theirs.unsafeGetTensorImpl()]);
      first.copy_(state.exp_avg());
      second.copy_(state.exp_avg_sq());
    }
    optimizer.step();
    adamw({.elements = static_cast<std::size_t>(count),
           .parameter = ours.data_ptr(),
           .gradient = gradient.data_ptr(),
           .exp_avg = first.data_ptr(),
           .exp_avg_sq = second.data_ptr()},
          {.learning_rate = 0.01}, step);
    for (std::int64_t i = 0; i < count; ++i) {
      // One unit in the last place of the parameter, and four of the learning rate: libtorch fuses
      // some products and sums.
      const float mine = ours[i].item<float>(), its = theirs[i].item<float>();
      const double most = std::max(unit(before[i].item<float>()), unit(its)) + 4 * unit(0.01f);
      ASSERT_LE(std::abs(mine - its), most) << step << ' ' << i;
    }
  }
}

template <typename Optimizer, typename Options>
std::vector<at::Tensor> train_with(Communicator& comm, Sharding sharding, const Options& options,
                                   ShardCut cut = ShardCut::elements, int steps = 4) {
  Mixed net;
  DistributedDataParallel ddp(net, comm,
                              {.limits = small_buckets, .sharding = sharding, .cut = cut});
  ShardedOptimizer<Optimizer> optimizer(
      ddp, options,
      std::vector<OptimizerGroup<Options>>{
          {[](const Parameter& p) { return p.sizes.size() < 2; }, Options(0.001)}});
  for (int step = 0; step < steps; ++step) {
    ddp.run([&] { return net.forward(batch_of(comm.rank(), step)); }).square().mean().backward();
    EXPECT_TRUE(optimizer.step());
    net.zero_grad();
  }
  return values_of(net);
}

/// libtorch's optimizer over the module's parameters, without hocket's.
template <typename Optimizer, typename Options>
std::vector<at::Tensor> train_plain(Communicator& comm, const Options& options, int steps = 4) {
  Mixed net;
  DistributedDataParallel ddp(net, comm, {.limits = small_buckets});
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& p : net.parameters()) {
    // A tied parameter once.
    auto& group = p.dim() < 2 ? others : matrices;
    if (p.requires_grad() && std::none_of(group.begin(), group.end(), [&](const at::Tensor& each) {
          return each.is_same(p);
        })) {
      group.push_back(p);
    }
  }
  Optimizer optimizer(
      {torch::optim::OptimizerParamGroup(others, std::make_unique<Options>(0.001)),
       torch::optim::OptimizerParamGroup(matrices, std::make_unique<Options>(options))},
      options);
  for (int step = 0; step < steps; ++step) {
    ddp.run([&] { return net.forward(batch_of(comm.rank(), step)); }).square().mean().backward();
    optimizer.step();
    net.zero_grad();
  }
  return values_of(net);
}

template <typename Optimizer, typename Options>
void expect_parity(const Options& options) {
  const auto expected =
      train(2, [&](Communicator& comm) { return train_plain<Optimizer>(comm, options); });
  for (const Sharding sharding : all_shardings) {
    const auto values = train(
        2, [&](Communicator& comm) { return train_with<Optimizer>(comm, sharding, options); });
    for (std::size_t p = 0; p < values.size(); ++p) {
      // libtorch's vector code and the code for its last elements round differently.
      EXPECT_TRUE(torch::allclose(values[p], expected[p], 1e-5, 1e-6))
          << static_cast<int>(sharding) << ' ' << p;
    }
  }
}

TEST(Zero, a_step_of_libtorchs_adamw_over_shards_is_within_a_unit_in_the_last_place_of_ddps) {
  const torch::optim::AdamWOptions options(0.01);
  const auto before = values_of(Mixed());
  const auto expected = train(
      2, [&](Communicator& comm) { return train_plain<torch::optim::AdamW>(comm, options, 1); });
  for (const Sharding sharding : all_shardings) {
    const auto values = train(2, [&](Communicator& comm) {
      return train_with<torch::optim::AdamW>(comm, sharding, options, ShardCut::elements, 1);
    });
    for (std::size_t p = 0; p < values.size(); ++p) {
      const at::Tensor was = before[p].flatten(), mine = values[p].flatten(),
                       its = expected[p].flatten();
      for (std::int64_t i = 0; i < mine.numel(); ++i) {
        // A parameter that a step makes smaller has the roundings of the larger number.
        const double most = std::max({unit(was[i].item<float>()), unit(its[i].item<float>())});
        ASSERT_LE(std::abs(mine[i].item<double>() - its[i].item<double>()), most)
            << static_cast<int>(sharding) << ' ' << p << ' ' << i;
      }
    }
  }
}

TEST(Zero, elementwise_optimizers_of_libtorch_run_over_shards) {
  expect_parity<torch::optim::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9).nesterov(true));
  expect_parity<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true));
  expect_parity<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
  expect_parity<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.5));
  expect_parity<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01));
}

TEST(Zero, optimizers_of_users_run_over_shards_or_whole_parameters) {
  const torch::optim::SGDOptions options(0.1);
  const auto by_elements = train(
      2, [&](Communicator& comm) { return train_with<PlainStep>(comm, Sharding::none, options); });
  const auto whole = train(
      2, [&](Communicator& comm) { return train_with<NormScaled>(comm, Sharding::none, options); });
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    EXPECT_TRUE(equal(by_elements, train(2, [&](Communicator& comm) {
                        return train_with<PlainStep>(comm, sharding, options);
                      })));
    const auto values = train(2, [&](Communicator& comm) {
      return train_with<NormScaled>(comm, sharding, options, ShardCut::parameters);
    });
    for (std::size_t p = 0; p < values.size(); ++p) {
      EXPECT_TRUE(torch::allclose(values[p], whole[p], 1e-5, 1e-6)) << p;
    }
    run_ranks(2, [&](Communicator& comm) {
      Mixed net;
      DistributedDataParallel ddp(net, comm, {.sharding = sharding});
      EXPECT_NE(message_of<InvalidUsage>([&] {
                  ShardedOptimizer<NormScaled> optimizer(ddp, options);
                }).find("ShardCut::parameters"),
                std::string::npos);
    });
  }
}

TEST(Zero, whole_parameters_have_their_shapes) {
  run_ranks(1, [](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm,
                                {.sharding = Sharding::zero1, .cut = ShardCut::parameters});
    ShardedOptimizer<NormScaled> optimizer(ddp, torch::optim::SGDOptions(0.1));
    ddp.run([&] { return net.forward(batch_of(0, 0)); }).sum().backward();
    optimizer.step();
    auto& shapes = optimizer.optimizer().shapes;
    std::sort(shapes.begin(), shapes.end());
    EXPECT_EQ(shapes, (std::vector<std::vector<std::int64_t>>{{}, {7}, {16, 7}, {16, 16}, {33}}));
  });
}

TEST(Zero, accumulates_with_no_sync_and_by_reducing_each_micro_step) {
  const auto run = [](Sharding sharding, bool without_sync) {
    return train(2, [&](Communicator& comm) {
      Mixed net;
      DistributedDataParallel ddp(net, comm, {.limits = small_buckets, .sharding = sharding});
      ShardedAdamW optimizer(ddp.parameters(), {.learning_rate = 0.01});
      for (int step = 0; step < 4; ++step) {
        net.zero_grad();
        for (int micro = 0; micro < 3; ++micro) {
          const auto forward = [&] {
            return ddp.run([&] { return net.forward(batch_of(comm.rank(), 3 * step + micro)); });
          };
          if (without_sync && micro < 2) {
            const auto guard = ddp.no_sync();
            forward().square().sum().backward();
          } else {
            forward().square().sum().backward();
          }
        }
        optimizer.step();
      }
      return values_of(net);
    });
  };
  for (const bool without_sync : {true, false}) {
    const auto expected = run(Sharding::none, without_sync);
    for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
      const auto values = run(sharding, without_sync);
      for (std::size_t p = 0; p < values.size(); ++p) {
        EXPECT_TRUE(torch::allclose(values[p], expected[p], 1e-4, 1e-5))
            << without_sync << ' ' << static_cast<int>(sharding) << ' ' << p;
        EXPECT_TRUE(!without_sync || torch::equal(values[p], expected[p]));
      }
    }
  }
}

TEST(Zero, parameters_that_no_rank_uses_stay_and_those_that_some_rank_uses_move) {
  for (const Sharding sharding : all_shardings) {
    train(2, [&](Communicator& comm) {
      Mixed net;
      DistributedDataParallel ddp(
          net, comm,
          {.limits = small_buckets, .find_unused_parameters = true, .sharding = sharding});
      ShardedAdamW optimizer(ddp.parameters(), {.learning_rate = 0.01});
      const auto step = [&](bool with_extra) {
        net.zero_grad();
        ddp.run([&] { return net.forward(batch_of(comm.rank(), 0), with_extra); })
            .square()
            .sum()
            .backward();
        optimizer.step();
      };
      step(true);
      const at::Tensor before = net.extra.detach().clone();
      step(false);
      EXPECT_TRUE(torch::equal(net.extra, before));
      step(comm.rank() == 1);
      EXPECT_FALSE(torch::equal(net.extra, before));
      return values_of(net);
    });
  }
}

TEST(Zero, parameters_keep_identity_strides_views_and_ties_and_outlive_the_wrapper) {
  run_ranks(2, [](Communicator& comm) {
    Mixed net;
    const at::Tensor row = net.tied.detach()[3];  // a view
    const at::Tensor transposed = net.transposed;
    const auto before = values_of(net);
    {
      DistributedDataParallel ddp(net, comm, {.sharding = Sharding::zero1});
      EXPECT_TRUE(equal(values_of(net), before));
      EXPECT_EQ(transposed.strides(), (std::vector<std::int64_t>{1, 16}));
      EXPECT_TRUE(net.transposed.is_same(transposed));
      ShardedAdamW optimizer(ddp.parameters());
      ddp.run([&] { return net.forward(batch_of(0, 0)); }).sum().backward();
      optimizer.step();
      EXPECT_TRUE(torch::equal(row, net.tied[3]));
      EXPECT_FALSE(torch::equal(row, before[0][3]));
    }
    const auto after = values_of(net);
    net.forward(batch_of(0, 0)).sum().backward();
    torch::optim::SGD optimizer({net.tied}, 0.1);
    optimizer.step();
    EXPECT_FALSE(torch::equal(net.tied, after[0]));
  });
}

TEST(Zero, gradients_are_undefined_after_backward_and_a_loop_without_our_optimizer_is_an_error) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    run_ranks(2, [&](Communicator& comm) {
      Mixed net;
      DistributedDataParallel ddp(net, comm, {.sharding = sharding});
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      const auto step = [&] {
        ddp.run([&] { return net.forward(batch_of(0, 0)); }).sum().backward();
      };
      step();
      for (const at::Tensor& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
      optimizer.step();
      EXPECT_NE(message_of<InvalidUsage>(step).find("ShardedAdamW"), std::string::npos);
    });
  }
}

TEST(Zero, writes_of_a_step_between_forward_and_backward_are_noticed) {
  run_ranks(1, [](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm, {.sharding = Sharding::zero1});
    ShardedAdamW optimizer(ddp.parameters());
    const at::Tensor loss = ddp.run([&] { return net.forward(batch_of(0, 0)); }).sum();
    optimizer.step();
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

/// Gives a sparse gradient on the last rank.
struct SometimesSparse : torch::nn::Module {
  SometimesSparse() {
    table = register_parameter("table", torch::ones({4, 3}));
    factor = register_parameter("factor", torch::ones({3}));
  }
  at::Tensor forward(bool sparse) {
    const at::Tensor rows = torch::embedding(table, torch::tensor({1, 2}), -1, false, sparse);
    return rows * factor;
  }
  at::Tensor table, factor;
};

TEST(Zero, a_backward_that_throws_on_one_rank_throws_on_all_and_the_next_step_works) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    train(2, [&](Communicator& comm) {
      SometimesSparse net;
      DistributedDataParallel ddp(net, comm, {.limits = small_buckets, .sharding = sharding});
      ShardedAdamW optimizer(ddp.parameters(), {.learning_rate = 0.1});
      const auto backward = [&](bool sparse) {
        ddp.run([&] { return net.forward(sparse); }).sum().backward();
      };
      backward(false);
      optimizer.step();
      const auto before = values_of(net);
      if (comm.rank() == 1) {
        EXPECT_NE(message_of<c10::Error>([&] { backward(true); }).find("is sparse"),
                  std::string::npos);
      } else {
        EXPECT_NE(message_of<Error>([&] { backward(false); }), "");
      }
      backward(false);
      optimizer.step();
      EXPECT_FALSE(equal(values_of(net), before));
      return values_of(net);
    });
  }
}

TEST(Zero, clips_by_the_norm_of_the_whole_model) {
  for (const Sharding sharding : all_shardings) {
    run_ranks(2, [&](Communicator& comm) {
      Mlp net, reference;
      torch::NoGradGuard no_grad;
      copy_model(net, reference);
      DistributedDataParallel ddp(net, comm, {.limits = small_buckets, .sharding = sharding});
      copy_model(net, reference);  // rank 0's
      torch::AutoGradMode grad(true);
      ddp.run([&] { return net.forward(batch_of(7, 0)); }).square().sum().backward();
      reference.forward(batch_of(7, 0)).square().sum().backward();
      const double expected = torch::nn::utils::clip_grad_norm_(reference.parameters(), 0.5);
      EXPECT_NEAR(clip_grad_norm(ddp.reducer(), 0.5), expected, 1e-5 * expected);
      EXPECT_NEAR(gradient_norm(ddp.reducer()), 0.5, 1e-4);
    });
  }
}

TEST(Zero, state_of_libtorchs_optimizers_goes_on_at_another_number_of_ranks) {
  std::mutex mutex;
  std::map<std::string, std::vector<std::byte>> saved;
  const auto steps = [](DistributedDataParallel& ddp, Mixed& net, auto& optimizer, int from,
                        int to) {
    for (int step = from; step < to; ++step) {
      ddp.run([&] { return net.forward(batch_of(0, step)); }).square().sum().backward();
      optimizer.step();
    }
  };
  const torch::optim::AdamWOptions options(0.01);
  const auto expected = train(1, [&](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm);
    ShardedOptimizer<torch::optim::AdamW> optimizer(ddp, options);
    for (int step = 0; step < 5; ++step) {
      net.zero_grad();
      steps(ddp, net, optimizer, step, step + 1);
    }
    return values_of(net);
  });
  run_ranks(3, [&](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm, {.limits = small_buckets, .sharding = Sharding::zero1});
    ShardedOptimizer<torch::optim::AdamW> optimizer(ddp, options);
    steps(ddp, net, optimizer, 0, 3);
    const std::lock_guard lock(mutex);
    auto ranges = optimizer.state();
    const auto values = ddp.parameters().ranges();
    ranges.insert(ranges.end(), values.begin(), values.end());
    for (const TensorRange& range : ranges) {
      const std::size_t width = element_bytes(range.tensor.dtype);
      auto& tensor = saved[range.tensor.name];
      tensor.resize(range.tensor.elements() * width);
      std::memcpy(tensor.data() + range.begin * width, range.data, range.elements * width);
    }
  });
  EXPECT_TRUE(saved.contains("exp_avg_sq/transposed"));
  const auto values = train(2, [&](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm, {.limits = small_buckets, .sharding = Sharding::zero2});
    ShardedOptimizer<torch::optim::AdamW> optimizer(ddp, options);
    auto ranges = optimizer.state();
    const auto own = ddp.parameters().ranges();
    ranges.insert(ranges.end(), own.begin(), own.end());
    for (const TensorRange& range : ranges) {
      const std::size_t width = element_bytes(range.tensor.dtype);
      std::memcpy(range.data, saved.at(range.tensor.name).data() + range.begin * width,
                  range.elements * width);
    }
    ddp.parameters().gather();
    optimizer.set_steps(3);
    steps(ddp, net, optimizer, 3, 5);
    return values_of(net);
  });
  for (std::size_t p = 0; p < values.size(); ++p) {
    EXPECT_TRUE(torch::allclose(values[p], expected[p], 1e-4, 1e-5)) << p;
  }
}

TEST(Zero, parameters_that_cannot_move_are_refused_by_name_on_all_ranks) {
  struct Parts : torch::nn::Module {
    explicit Parts(int kind) {
      const at::Tensor base = torch::zeros({4, 6});
      first = register_parameter("first", kind == 0 ? base.slice(0, 0, 2) : base);
      if (kind < 2) keep = base;
      if (kind == 1) second = register_parameter("second", base.view({24}));
      if (kind == 2) second = register_parameter("second", torch::zeros({4, 6}).slice(1, 0, 3));
    }
    at::Tensor first, second, keep;
  };
  const std::pair<int, const char*> cases[] = {{0, "part of the memory of other tensors"},
                                               {1, "shares memory with parameter 'first'"},
                                               {2, "gaps"}};
  for (const auto& [kind, sentence] : cases) {
    run_ranks(2, [&, kind = kind, sentence = sentence](Communicator& comm) {
      Parts net(kind);
      const std::string message = message_of<InvalidArgument>(
          [&] { DistributedDataParallel ddp(net, comm, {.sharding = Sharding::zero1}); });
      EXPECT_NE(message.find(sentence), std::string::npos) << message;
    });
  }
}

TEST(Zero, parameters_whose_memory_was_replaced_are_named) {
  run_ranks(2, [](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm, {.sharding = Sharding::zero1});
    ShardedAdamW optimizer(ddp.parameters());
    net.extra.set_data(torch::zeros({33}));
    EXPECT_NE(message_of<InvalidUsage>([&] {
                ddp.run([&] { return net.forward(batch_of(0, 0)); });
              }).find("'extra'"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace hocket::training
