// DistributedDataParallel over modules as users write them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <hocket/training/compression.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "training/ranks.h"
#include "training/torch/models.h"

namespace hocket::training {
namespace {

using tests::batch_of;
using tests::message_of;
using tests::Mlp;
using tests::run_ranks;

/// What is wrong with a rank's backward; empty: nothing.
template <typename Action>
std::string failure_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void expect_equal_on_all_ranks(Communicator& comm, const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor mine = tensors[i].detach().contiguous();
    at::Tensor first = mine.clone();
    comm.broadcast(std::span(static_cast<char*>(first.data_ptr()), first.nbytes()), 0);
    EXPECT_TRUE(torch::equal(mine, first)) << "tensor " << i << " of rank " << comm.rank();
  }
}

TEST(Ddp, gradients_of_two_ranks_have_the_bits_of_one_process_that_accumulates) {
  Mlp reference;
  run_ranks(2, [&](Communicator& comm) {
    Mlp net;
    tests::copy_model(reference, net);
    DistributedDataParallel ddp(net, comm);
    for (int step = 0; step < 4; ++step) {
      net.zero_grad();
      ddp(&net, batch_of(comm.rank(), step)).square().sum().backward();
      if (comm.rank() == 0) {
        reference.zero_grad();
        for (const int rank : {0, 1}) {
          reference.forward(batch_of(rank, step)).square().sum().backward();
        }
        for (std::size_t i = 0; i < net.parameters().size(); ++i) {
          const at::Tensor expected = reference.parameters()[i].grad() / 2;
          EXPECT_TRUE(torch::equal(net.parameters()[i].grad(), expected)) << step << ' ' << i;
        }
      }
      expect_equal_on_all_ranks(comm, net.parameters());
    }
  });
}

TEST(Ddp, a_gradient_that_is_not_finite_on_one_rank_is_an_error_of_backward_on_all) {
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    run_ranks(3, [&](Communicator& comm) {
      Mlp net;
      DistributedDataParallel ddp(net, comm, {.sharding = sharding});
      for (const bool wrong : {false, true, false}) {
        net.zero_grad();
        const at::Tensor loss = ddp(&net, batch_of(comm.rank(), 0)).square().sum();
        const double factor = wrong && comm.rank() == 1 ? std::nan("") : 1;
        const std::string failure = failure_of([&] { (loss * factor).backward(); });
        if (!wrong) {
          EXPECT_EQ(failure, "");
          ddp.reducer().discard();
          (void)ddp.parameters();  // else the next forward misses an optimizer
          continue;
        }
        EXPECT_NE(failure.find("the gradient of parameter 'layer0.weight' (float32, 16 x 16) is "
                               "NaN or infinite on rank 1 (and those of 5 more parameters)"),
                  std::string::npos)
            << failure;
      }
    });
  }
}

TEST(Ddp, keeps_replicas_equal_that_began_differently) {
  run_ranks(3, [](Communicator& comm) {
    torch::manual_seed(comm.rank());  // the constructor broadcasts the parameters of rank 0
    Mlp net;
    DistributedDataParallel ddp(net, comm, {.limits = {.first_bytes = 100, .bytes = 2000}});
    torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(0.01));
    std::vector<float> losses;
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
      at::Tensor loss = ddp(&net, batch_of(comm.rank(), 0)).square().mean();
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<float>());
    }
    EXPECT_LT(losses.back(), losses.front());
    expect_equal_on_all_ranks(comm, net.parameters());
  });
}

TEST(Ddp, gradients_lie_in_the_buckets_and_nowhere_else) {
  run_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    for (const bool set_to_none : {true, false, true}) {
      net.zero_grad(set_to_none);
      ddp(&net, batch_of(comm.rank(), 0)).sum().backward();
      for (int p = 0; p < 6; ++p) {
        const at::Tensor gradient = net.parameters()[static_cast<std::size_t>(p)].grad();
        EXPECT_EQ(gradient.data_ptr(), ddp.reducer().gradient(p));
      }
    }
  });
}

/// A result with tensors inside.
struct Outputs {
  at::Tensor logits;
  std::string note;
  std::optional<at::Tensor> hidden;
};
template <typename Visit>
void visit_tensors(const Outputs& outputs, Visit&& visit) {
  visit(outputs.logits);
  if (outputs.hidden) visit(*outputs.hidden);
}

TEST(Ddp, a_forward_may_have_any_signature) {
  run_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    const at::Tensor x = batch_of(comm.rank(), 1), y = batch_of(comm.rank(), 2);
    const auto both = [&](const at::Tensor& a, const at::Tensor& b) {
      return std::tuple(net.forward(a), net.forward(b));
    };
    std::vector<at::Tensor> expected;
    const auto check = [&](const std::function<at::Tensor()>& loss) {
      net.zero_grad();
      loss().backward();
      std::vector<at::Tensor> gradients;
      for (const at::Tensor& p : net.parameters()) gradients.push_back(p.grad().clone());
      if (expected.empty()) expected = gradients;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_TRUE(torch::allclose(gradients[i], expected[i], 1e-5, 1e-6)) << i;
      }
    };
    check([&] {
      auto [a, b] = ddp.run([&] { return both(x, y); });
      return a.sum() + b.sum();
    });
    check([&] {
      auto all = ddp.run([&] { return std::vector{net.forward(x), net.forward(y)}; });
      return all[0].sum() + all[1].sum();
    });
    check([&] {
      auto named = ddp.run([&] {
        return std::map<std::string, at::Tensor>{{"a", net.forward(x)}, {"b", net.forward(y)}};
      });
      return named["a"].sum() + named["b"].sum();
    });
    check([&] {
      Outputs out = ddp.run([&] { return Outputs{net.forward(x), "note", net.forward(y)}; });
      return out.logits.sum() + out.hidden->sum();
    });
    check([&] {  // two forwards, one backward
      at::Tensor a = ddp(&net, x), b = ddp(&net, y);
      return a.sum() + b.sum();
    });
    expect_equal_on_all_ranks(comm, expected);
  });
}

TEST(Ddp, several_backwards_of_a_step_add_their_averages) {
  run_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    const auto gradients_of = [&](bool at_once) {
      net.zero_grad();
      at::Tensor a = ddp(&net, batch_of(comm.rank(), 1)), b = ddp(&net, batch_of(comm.rank(), 2));
      if (at_once) {
        (a.sum() + b.sum()).backward();
      } else {
        a.sum().backward();
        b.sum().backward();
      }
      return net.parameters()[0].grad().clone();
    };
    const at::Tensor expected = gradients_of(true);
    EXPECT_TRUE(torch::allclose(gradients_of(false), expected, 1e-5, 1e-6));
    EXPECT_TRUE(torch::allclose(gradients_of(true), expected, 1e-5, 1e-6));
  });
}

TEST(Ddp, without_sync_gradients_add_up_and_are_reduced_once) {
  run_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    const auto step = [&](bool accumulate) {
      net.zero_grad();
      if (accumulate) {
        const auto local = ddp.no_sync();
        ddp(&net, batch_of(comm.rank(), 1)).sum().backward();
        ddp(&net, batch_of(comm.rank(), 2)).sum().backward();
      }
      const at::Tensor last = ddp(&net, batch_of(comm.rank(), 3)).sum();
      const at::Tensor whole = accumulate ? last
                                          : last + ddp(&net, batch_of(comm.rank(), 1)).sum() +
                                                ddp(&net, batch_of(comm.rank(), 2)).sum();
      whole.backward();
      return net.parameters()[1].grad().clone();
    };
    const at::Tensor expected = step(false);
    for (int i = 0; i < 3; ++i) {
      const at::Tensor accumulated = step(true);
      EXPECT_TRUE(torch::allclose(accumulated, expected, 1e-5, 1e-6));
      expect_equal_on_all_ranks(comm, {accumulated});
    }
  });
}

/// Uses its second branch on request.
struct Branches : torch::nn::Module {
  Branches() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x, bool both) {
    return both ? first(x) + second(x) : first(x);
  }
  torch::nn::Linear first{16, 16}, second{16, 16};
};

TEST(Ddp, an_unused_parameter_is_named_with_its_ranks_or_allowed) {
  run_ranks(2, [](Communicator& comm) {
    Branches net;
    DistributedDataParallel strict(net, comm);
    const std::string message = message_of<Mismatch>([&] {
      for (const bool both : {true, comm.rank() == 0}) {
        net.zero_grad();
        strict.run([&] { return net.forward(batch_of(0, 0), both); }).sum().backward();
      }
    });
    EXPECT_NE(message.find("'second.weight' (float32, 16 x 16) received no gradient in this "
                           "backward on rank 1"),
              std::string::npos)
        << message;
  });
  run_ranks(2, [](Communicator& comm) {
    Branches net;
    DistributedDataParallel ddp(net, comm, {.find_unused_parameters = true});
    for (const int users : {2, 1, 0, 2}) {  // ranks that use the second branch
      net.zero_grad();
      const bool both = comm.rank() < users;
      ddp.run([&] { return net.forward(torch::ones({1, 16}), both); }).sum().backward();
      const at::Tensor gradient = net.second->bias.grad();
      EXPECT_EQ(gradient.defined(), users > 0);
      if (users > 0) {
        EXPECT_EQ(gradient[0].item<float>(), static_cast<float>(users) / 2);
      }
      EXPECT_EQ(net.first->bias.grad()[0].item<float>(), 1.0f);
    }
  });
  run_ranks(2, [](Communicator& comm) {
    Branches net;
    DistributedDataParallel ddp(net, comm, {.static_graph = true});
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      const bool both = comm.rank() == 1;
      ddp.run([&] { return net.forward(torch::ones({1, 16}), both); }).sum().backward();
      EXPECT_EQ(net.second->bias.grad()[0].item<float>(), 0.5f);
    }
  });
}

/// Fails on request in backward.
struct Fragile : torch::autograd::Function<Fragile> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    throw std::runtime_error("the disk of this rank is full");
  }
};

TEST(Ddp, a_backward_that_throws_on_one_rank_throws_on_all_and_the_next_step_works) {
  run_ranks(3, [](Communicator& comm) {
    Branches net;
    DistributedDataParallel ddp(net, comm, {.limits = {.first_bytes = 1, .bytes = 1}});
    for (int step = 0; step < 5; ++step) {
      net.zero_grad();
      const bool fails = step % 2 == 1 && comm.rank() == 2;
      const std::string failure = failure_of([&] {
        at::Tensor out = ddp.run([&] {
          const at::Tensor x = net.first(batch_of(comm.rank(), 0));
          return net.second(fails ? Fragile::apply(x) : x);
        });
        out.sum().backward();
      });
      const std::string expected = step % 2 == 0 ? ""
                                   : fails       ? "the disk of this rank is full"
                                                 : "backward failed on rank 2";
      EXPECT_NE(failure.find(expected), std::string::npos) << failure;
      EXPECT_EQ(failure.empty(), expected.empty()) << failure;
    }
    expect_equal_on_all_ranks(comm, {net.first->weight.grad()});
  });
}

TEST(Ddp, gradients_that_cannot_be_reduced_are_refused_by_name) {
  struct Sparse : torch::nn::Module {
    Sparse() { register_module("table", table); }
    torch::nn::Embedding table{torch::nn::EmbeddingOptions(10, 4).sparse(true)};
  };
  run_ranks(2, [](Communicator& comm) {
    Sparse net;
    DistributedDataParallel ddp(net, comm);
    const std::string sparse = failure_of([&] {
      ddp.run([&] { return net.table(torch::tensor({1, 2})); }).sum().backward();
    });
    EXPECT_NE(sparse.find("'table.weight' is sparse"), std::string::npos) << sparse;
    Mlp plain;
    DistributedDataParallel again(plain, comm);
    const std::string graph = failure_of(
        [&] { again(&plain, batch_of(0, 0)).square().sum().backward({}, std::nullopt, true); });
    EXPECT_NE(graph.find("create_graph"), std::string::npos) << graph;
  });
  struct Complex : torch::nn::Module {
    Complex() { register_parameter("phase", torch::ones({2}, torch::kComplexFloat)); }
  };
  run_ranks(2, [](Communicator& comm) {
    Complex net;
    const std::string message =
        message_of<InvalidArgument>([&] { DistributedDataParallel ddp(net, comm); });
    EXPECT_NE(message.find("parameter 'phase' has type ComplexFloat"), std::string::npos)
        << message;
    struct Nothing : torch::nn::Module {
    } empty;
    EXPECT_THROW(DistributedDataParallel ddp(empty, comm), InvalidArgument);
  });
}

TEST(Ddp, a_gradient_of_a_forward_outside_of_run_is_refused) {
  run_ranks(1, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    const std::string failure = failure_of([&] { net.forward(batch_of(0, 0)).sum().backward(); });
    EXPECT_NE(failure.find("did not run in DistributedDataParallel::run"), std::string::npos);
    ddp(&net, batch_of(0, 0)).sum().backward();
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(ddp(&net, batch_of(0, 0)).requires_grad());
  });
}

struct Shapes : torch::nn::Module {
  Shapes() {
    register_module("convolution", convolution);
    register_module("norm", norm);
    convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
    wide = register_parameter("wide", torch::ones({3}, torch::kDouble));
    half = register_parameter("half", torch::ones({3}, torch::kBFloat16));
    frozen = register_parameter("frozen", torch::ones({3}), /*requires_grad=*/false);
    tied = register_parameter("tied", wide);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = norm(convolution(x)).square().mean();
    return y * wide.sum() * frozen.sum() + half.sum() * y + tied.prod();
  }
  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(3, 5, 3)};
  torch::nn::BatchNorm2d norm{5};
  at::Tensor wide, half, frozen, tied;
};

TEST(Ddp, strides_types_ties_frozen_parameters_and_buffers_are_kept) {
  run_ranks(2, [](Communicator& comm) {
    torch::manual_seed(comm.rank());
    Shapes net;
    net.frozen.fill_(1.0 + comm.rank());  // rank 0's are broadcast
    DistributedDataParallel ddp(net, comm);
    EXPECT_EQ(ddp.reducer().parameters().size(), 6u);  // without `frozen`, and `tied` is `wide`
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      const at::Tensor x = torch::randn({2, 3, 8, 8});
      ddp.run([&] { return net.forward(x); }).backward();
      const at::Tensor weight = net.convolution->weight;
      EXPECT_EQ(weight.grad().strides(), weight.strides());
      EXPECT_FALSE(weight.is_contiguous());
      EXPECT_EQ(net.wide.grad().scalar_type(), torch::kDouble);
      EXPECT_EQ(net.half.grad().scalar_type(), torch::kBFloat16);
      std::vector<at::Tensor> gradients;
      for (const at::Tensor& p : net.parameters()) {
        if (p.requires_grad()) gradients.push_back(p.grad());
      }
      expect_equal_on_all_ranks(comm, gradients);
      const bool synchronized = step == 2;
      if (synchronized) {
        const torch::NoGradGuard no_grad;
        ddp.run([&] { return net.forward(x); });  // no broadcast of buffers
      }
    }
    EXPECT_EQ(net.frozen[0].item<float>(), 1.0f);
    // The statistics differ after a forward; the next one that synchronizes broadcasts rank 0's.
    std::vector<at::Tensor> before{net.norm->running_mean.clone()};
    comm.broadcast(std::span(static_cast<char*>(before[0].data_ptr()), before[0].nbytes()), 0);
    at::Tensor used;
    ddp.run([&] {
      used = net.norm->running_mean.clone();
      return net.forward(torch::randn({2, 3, 8, 8}));
    });
    EXPECT_TRUE(torch::equal(used, before[0]));
  });
}

/// libtorch of the tests has no GPU. A tensor of the device `meta` has no memory either.
struct OnOtherDevice : torch::nn::Module {
  /// which: the tensor that rank 1 has on the other device.
  OnOtherDevice(const std::string& which, int rank) {
    const auto options = [&](const char* name) {
      return torch::TensorOptions().device(rank == 1 && which == name ? torch::kMeta : torch::kCPU);
    };
    register_parameter("weight", torch::ones({4}));
    register_parameter("trained", torch::ones({3}, options("trained")));
    register_parameter("frozen", torch::ones({3}, options("frozen")), false);
    register_buffer("statistics", torch::ones({3}, options("statistics")));
  }
};

TEST(Ddp, a_tensor_on_another_device_is_refused_on_all_ranks_by_name_and_device) {
  const std::pair<const char*, const char*> cases[] = {
      {"trained", "parameter 'trained' is on device meta"},
      {"frozen", "frozen parameter 'frozen' is on device meta"},
      {"statistics", "buffer 'statistics' is on device meta"}};
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    for (const auto& [which, sentence] : cases) {
      run_ranks(2, [&, which = which, sentence = sentence](Communicator& comm) {
        OnOtherDevice net(which, comm.rank());
        const std::string message = message_of<InvalidArgument>(
            [&] { DistributedDataParallel ddp(net, comm, {.sharding = sharding}); });
        EXPECT_NE(message.find("rank 1: "), std::string::npos) << message;
        EXPECT_NE(message.find(sentence), std::string::npos) << message;
      });
    }
  }
}

TEST(Ddp, models_that_differ_are_refused_on_all_ranks) {
  run_ranks(2, [](Communicator& comm) {
    Mlp net(3, comm.rank() == 0 ? 16 : 8);
    const std::string message =
        message_of<Mismatch>([&] { DistributedDataParallel ddp(net, comm); });
    EXPECT_NE(message.find("rank 0 has 'layer0.weight' (float32, 16 x 16)"), std::string::npos)
        << message;
    Mlp same;
    same.register_buffer("statistics", torch::ones({comm.rank() + 1}));
    const std::string buffers =
        message_of<Mismatch>([&] { DistributedDataParallel ddp(same, comm); });
    EXPECT_NE(buffers.find("buffer or frozen parameter 0: rank 0 has 'statistics' (Float, [1])"),
              std::string::npos)
        << buffers;
  });
}

TEST(Ddp, ranks_with_fewer_batches_join_until_all_are_done) {
  run_ranks(3, [](Communicator& comm) {
    torch::manual_seed(1);
    Shapes net;  // it has buffers
    DistributedDataParallel ddp(net, comm);
    torch::optim::SGD optimizer(net.parameters(), 0.01);
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join = ddp.join();
      for (int step = 0; step < 2 + comm.rank(); ++step) {
        optimizer.zero_grad();
        ddp.run([&] { return net.forward(torch::randn({2, 3, 8, 8})); }).backward();
        optimizer.step();
      }
      join.finish();
      expect_equal_on_all_ranks(comm, net.parameters());
      expect_equal_on_all_ranks(comm, net.buffers());
    }
  });
}

/// The gradient of element i of `values` is the mean of the batches' factors.
struct Line : torch::nn::Module {
  Line() { values = register_parameter("values", torch::zeros({8})); }
  at::Tensor forward(double factor) { return (values * factor).sum(); }
  at::Tensor values;
};

TEST(Ddp, a_rank_without_batches_adds_zeros_to_gradients_though_its_grad_has_the_last_average) {
  for (const int ranks : {2, 3}) {
    for (const bool by_active : {false, true}) {
      run_ranks(ranks, [&](Communicator& comm) {
        Line net;
        DistributedDataParallel ddp(net, comm);
        torch::optim::SGD optimizer({net.values}, 1);
        for (int epoch = 0; epoch < 3; ++epoch) {
          Join join = ddp.join(by_active);
          for (int step = 0; step <= comm.rank(); ++step) {
            ddp.run([&] { return net.forward(12 * comm.rank() + 6); }).backward();
            float sum = 0;  // of the ranks that have a batch
            for (int rank = step; rank < ranks; ++rank) sum += static_cast<float>(12 * rank + 6);
            const float average = sum / static_cast<float>(by_active ? ranks - step : ranks);
            EXPECT_TRUE(torch::allclose(net.values.grad(), torch::full({8}, average))) << epoch;
            optimizer.step();
            optimizer.zero_grad(epoch == 1);
          }
          join.finish();
          expect_equal_on_all_ranks(comm, {net.values});
        }
      });
    }
  }
}

TEST(Ddp, an_update_that_all_ranks_make_keeps_momentum_equal_on_ranks_with_fewer_batches) {
  run_ranks(3, [](Communicator& comm) {
    Line net, by_hand;
    DistributedDataParallel ddp(net, comm);
    const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
    torch::optim::SGD optimizer({net.values}, options), of_hand({by_hand.values}, options);
    const auto update = [&] {
      optimizer.step();
      optimizer.zero_grad();
    };
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join = ddp.join({.update = update});
      for (int step = 0; step < 2 * comm.rank(); ++step) {  // rank 0 has none
        ddp.run([&] { return net.forward(3 * (comm.rank() + 1)); }).backward();
        join.update();
      }
      join.finish();
      for (int step = 0; step < 4; ++step) {
        by_hand.values.mutable_grad() = torch::full({8}, step < 2 ? 5.0f : 3.0f);
        of_hand.step();
      }
      EXPECT_TRUE(torch::allclose(net.values, by_hand.values)) << epoch;
      const auto& momentum = static_cast<torch::optim::SGDParamState&>(
          *optimizer.state()[net.values.unsafeGetTensorImpl()]);
      expect_equal_on_all_ranks(comm, {net.values, momentum.momentum_buffer()});
    }
  });
}

TEST(Ddp, a_rank_whose_last_batch_was_under_no_sync_is_an_error_that_names_the_parameter) {
  run_ranks(2, [](Communicator& comm) {
    Communicator short_waits = comm.duplicate({.deadline = std::chrono::seconds(20)});
    Line net;
    DistributedDataParallel ddp(net, short_waits);
    const auto loop = [&] {
      Join join = ddp.join();
      if (comm.rank() == 1) {
        const auto alone = ddp.no_sync();
        ddp.run([&] { return net.forward(1); }).backward();
      }
      join.finish();
    };
    const std::string message = message_of<Error>(loop);
    EXPECT_NE(message.find(comm.rank() == 1 ? "parameter 'values' (float32, 8) has a gradient of "
                                              "a backward that did not synchronize"
                                            : "rank 1"),
              std::string::npos)
        << message;
  });
}

TEST(Ddp, reduces_as_the_program_says) {
  run_ranks(2, [](Communicator& comm) {
    Mlp net, exact;
    tests::copy_model(net, exact);
    DistributedDataParallel ddp(
        net, comm, {.reduction = std::make_shared<CompressedAllReduce>(hocketBfloat16)});
    DistributedDataParallel plain(exact, comm);
    tests::copy_model(net, exact);
    ddp(&net, batch_of(comm.rank(), 0)).square().sum().backward();
    plain(&exact, batch_of(comm.rank(), 0)).square().sum().backward();
    const at::Tensor rounded = net.parameters()[0].grad(), full = exact.parameters()[0].grad();
    EXPECT_FALSE(torch::equal(rounded, full));
    EXPECT_TRUE(torch::allclose(rounded, full, 0.01, 0.01));
    expect_equal_on_all_ranks(comm, {rounded});
  });
}

TEST(Ddp, an_error_of_the_communication_ends_backward_on_all_ranks) {
  run_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    ddp(&net, batch_of(0, 0)).sum().backward();
    comm.barrier();
    if (comm.rank() == 1) ddp.reducer().communicator().abort();
    for (int i = 0; i < 2; ++i) {
      net.zero_grad();
      EXPECT_THROW(ddp(&net, batch_of(0, 0)).sum().backward(), Error);
    }
  });
}

}  // namespace
}  // namespace hocket::training
