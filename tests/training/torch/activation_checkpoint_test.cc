// Parts of a model whose forward runs again in backward.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <hocket/training/torch/activation_checkpoint.hpp>
#include <hocket/training/torch/autocast.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <map>
#include <tuple>
#include <vector>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

/// A part of a model, with random numbers.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width = 8)
      : in(register_module("in", torch::nn::Linear(width, 4 * width))),
        out(register_module("out", torch::nn::Linear(4 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    return x + out(torch::dropout(torch::gelu(in(x)), 0.3, is_training()));
  }
  torch::nn::Linear in, out;
};
TORCH_MODULE(Block);

at::Tensor data(int rows = 6, int width = 8) {
  return torch::sin(torch::arange(rows * width, torch::kFloat).view({rows, width}));
}

std::vector<at::Tensor> gradients(torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : module.parameters()) all.push_back(p.grad().clone());
  module.zero_grad();
  return all;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

TEST(ActivationCheckpoint, has_the_bits_of_a_plain_call_with_random_numbers_too) {
  torch::nn::ModuleList blocks;
  for (int i = 0; i < 3; ++i) blocks->push_back(Block());
  const auto train = [&](bool plain, at::Tensor x, at::Tensor& after) {
    torch::manual_seed(5);
    for (int i = 0; i < 3; ++i) {
      auto block = blocks->ptr<BlockImpl>(static_cast<std::size_t>(i));
      x = plain ? block->forward(x)
                : checkpoint([block](const at::Tensor& x) { return block->forward(x); }, x);
    }
    const at::Tensor loss = x.square().mean();
    loss.backward();
    after = torch::rand({4});  // the second calls leave the random numbers as they were
    return loss;
  };
  at::Tensor x[2] = {data().requires_grad_(), data().requires_grad_()}, after[2];
  const at::Tensor plain = train(true, x[0], after[0]);
  const auto expected = gradients(*blocks);
  EXPECT_TRUE(torch::equal(train(false, x[1], after[1]), plain));
  expect_equal(gradients(*blocks), expected);
  EXPECT_TRUE(torch::equal(x[0].grad(), x[1].grad()));
  EXPECT_TRUE(torch::equal(after[0], after[1]));
}

TEST(ActivationCheckpoint, calls_inside_of_calls_have_the_bits_of_plain_calls) {
  Block a, b;
  const auto one = [](Block block) { return [block](at::Tensor x) mutable { return block(x); }; };
  torch::manual_seed(1);
  b(a(data())).sum().backward();
  const auto expected = gradients(*a);
  torch::manual_seed(1);
  checkpoint(
      [&](const at::Tensor& x) {
        return checkpoint(one(b),
                          checkpoint([&](at::Tensor y) { return checkpoint(one(a), y); }, x));
      },
      data())
      .sum()
      .backward();
  expect_equal(gradients(*a), expected);
}

TEST(ActivationCheckpoint, parameters_get_gradients_if_no_input_requires_them) {
  Block block;
  block->eval();
  block(data()).sum().backward();
  const auto expected = gradients(*block);
  checkpoint([&] { return block(data()); }).sum().backward();
  expect_equal(gradients(*block), expected);
  checkpoint(block, data()).sum().backward();
  expect_equal(gradients(*block), expected);
}

struct Pair {
  at::Tensor first, second;
  int note = 0;
};
template <typename Visit>
void visit_tensors(const Pair& pair, Visit&& visit) {
  visit(pair.first);
  visit(pair.second);
}

TEST(ActivationCheckpoint, takes_and_returns_any_type_that_has_tensors) {
  const auto mix = [](const Pair& pair, std::vector<at::Tensor> list,
                      const std::map<std::string, at::Tensor>& named,
                      std::optional<at::Tensor> mask, double factor, const at::Tensor& rows) {
    EXPECT_FALSE(mask.has_value() && mask->defined());
    const at::Tensor sum = pair.first * list.at(0) + named.at("x") * factor;
    return std::make_tuple(
        Pair{sum, sum.index_select(0, rows) * pair.second[rows[0]], pair.note + 1},
        std::vector<at::Tensor>{list.at(1).exp(), at::Tensor(), rows + 1}, std::string("text"));
  };
  std::vector<at::Tensor> leaves[2];
  for (const bool plain : {true, false}) {
    auto& leaf = leaves[plain ? 0 : 1];
    for (int i = 0; i < 5; ++i) leaf.push_back((data() + i).requires_grad_(i != 3));
    const Pair pair{leaf[0], leaf[1], 7};
    const std::vector<at::Tensor> list{leaf[2], leaf[3]};
    const std::map<std::string, at::Tensor> named{{"x", leaf[4]}};
    const at::Tensor rows = torch::tensor({2, 0});
    const auto check = [&](const auto& result) {
      const auto& [both, more, text] = result;
      EXPECT_EQ(both.note, 8);
      EXPECT_EQ(text, "text");
      EXPECT_FALSE(more.at(1).defined());
      EXPECT_FALSE(more.at(2).requires_grad());
      EXPECT_TRUE(torch::equal(more.at(2), torch::tensor({3, 1})));
      (both.first.sum() + both.second.square().sum() + more.at(0).sum().detach()).backward();
    };
    if (plain) {
      check(mix(pair, list, named, at::Tensor(), 2.0, rows));
    } else {
      check(checkpoint(mix, pair, list, named, std::optional<at::Tensor>(at::Tensor()), 2.0, rows));
    }
  }
  for (const std::size_t i : {0, 1, 2, 4}) {
    EXPECT_TRUE(torch::equal(leaves[0][i].grad(), leaves[1][i].grad())) << i;
  }
  EXPECT_FALSE(leaves[1][3].grad().defined());
}

TEST(ActivationCheckpoint, outputs_may_be_inputs_parameters_views_and_one_tensor_twice) {
  const auto function = [](const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor y = x * weight;
    return std::vector<at::Tensor>{x, weight, y, y, y.view(-1), x.t()};
  };
  at::Tensor x[2], weight[2];
  for (const int i : {0, 1}) {
    x[i] = data().requires_grad_();
    weight[i] = torch::linspace(1, 2, 8).requires_grad_();
    const at::Tensor in = x[i] * 1;
    const auto outputs =
        i == 0 ? function(in, weight[0])
               : checkpoint([&](const at::Tensor& x) { return function(x, weight[1]); }, in);
    at::Tensor loss = torch::zeros({});
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      loss = loss + (outputs[k].square() * static_cast<double>(k + 1)).sum();
    }
    loss.backward();
    EXPECT_TRUE(weight[i].is_leaf());
  }
  EXPECT_TRUE(torch::allclose(x[0].grad(), x[1].grad()));
  EXPECT_TRUE(torch::allclose(weight[0].grad(), weight[1].grad()));
}

TEST(ActivationCheckpoint, without_gradients_it_only_calls_the_function) {
  Block block;
  block->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor y = checkpoint(block, data());
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(torch::equal(y, block(data())));
}

TEST(ActivationCheckpoint, what_backward_cannot_do_is_refused_with_the_name_of_the_part) {
  const at::Tensor weight = torch::ones({8}, torch::requires_grad());
  const auto forward = [&](const at::Tensor& x) {
    return checkpoint(
        {.name = "middle"}, [&](const at::Tensor& x) { return (x * weight).exp(); }, x);
  };
  const auto refused = [&](const std::function<void()>& action) {
    const std::string message = message_of<c10::Error>(action);
    EXPECT_NE(message.find("'middle'"), std::string::npos) << message;
    return message;
  };
  const auto expect_text = [](const std::string& message, const std::string& text) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  at::Tensor x = data().requires_grad_();

  at::Tensor loss = forward(x).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = weight.grad().clone();
  loss.backward();
  EXPECT_TRUE(torch::equal(weight.grad(), once + once));
  loss = forward(x).sum();
  const at::Tensor other = loss * 2;
  loss.backward();
  expect_text(refused([&] { other.backward(); }), "has had its backward");

  expect_text(refused([&] { forward(x).sum().backward({}, {}, /*create_graph=*/true); }),
              "second derivative");
  expect_text(refused([&] { torch::autograd::grad({forward(x).sum()}, {x}); }), "autograd::grad()");
  expect_text(refused([&] { forward(x).sum().backward({}, {}, false, {{x}}); }),
              "without `inputs`");

  at::Tensor changed = x * 1;
  const at::Tensor y = forward(changed);
  changed.add_(1);
  expect_text(refused([&] { y.sum().backward(); }), "modified by an inplace operation");

  for (const bool count : {false, true}) {
    int call = 0;
    const auto sum = checkpoint(
        {.name = "middle"},
        [&](const at::Tensor& x) {
          const bool first = ++call == 1;
          std::vector<at::Tensor> results{first || count ? x * 2 : x.narrow(0, 0, 2) * 2};
          if (first && count) results.push_back(x * 3);
          return results;
        },
        x);
    expect_text(refused([&] { sum[0].sum().backward(); }),
                count ? "2 tensors in forward, but 1" : "must do the same both times");
  }
}

TEST(ActivationCheckpoint,
     an_error_of_the_second_call_leaves_backward_and_restores_random_numbers) {
  int call = 0;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& x) {
        if (++call == 2) throw std::runtime_error("no second time");
        return torch::dropout(x, 0.5, true);
      },
      data());
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_NE(message_of<std::exception>([&] { y.sum().backward(); }).find("no second time"),
            std::string::npos);
  EXPECT_TRUE(torch::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(ActivationCheckpoint, bytes_are_those_that_were_computed_before) {
  constexpr int parts = 4;
  std::vector<Block> blocks;
  for (int i = 0; i < parts; ++i) blocks.emplace_back(64);
  const at::Tensor x = data(32, 64);
  ActivationBytes expected;
  for (int i = 0; i < parts; ++i) {
    const ActivationBytes part = activation_bytes(blocks[static_cast<std::size_t>(i)], x);
    // The hidden layer before and after gelu, the mask of dropout and what it gives.
    EXPECT_GE(part.plain, 3 * 32 * 256 * 4);
    EXPECT_LT(part.checkpointed, 6000);  // the state of the random numbers
    EXPECT_EQ(part.inputs, 32 * 64 * 4);
    EXPECT_EQ(part.outputs, 32 * 64 * 4);
    const std::int64_t between = i + 1 < parts ? part.outputs : 0;
    expected.plain += part.plain + between;
    expected.checkpointed += part.checkpointed + between;
  }
  const auto all = [&](bool plain) {
    return activation_bytes(
               [&](at::Tensor y) {
                 for (Block& block : blocks) y = plain ? block(y) : checkpoint(block, y);
                 return y;
               },
               x)
        .plain;
  };
  EXPECT_EQ(all(true), expected.plain);
  EXPECT_EQ(all(false), expected.checkpointed);
  // Without random numbers their state is not kept.
  const ActivationBytes without =
      activation_bytes({.name = "block", .preserve_rng = false}, blocks[0], x);
  EXPECT_EQ(without.checkpointed, 0);
  EXPECT_EQ(without.plain, activation_bytes(blocks[0], x).plain);
}

TEST(ActivationCheckpoint, the_second_call_has_the_autocast_state_of_the_first) {
  Block block;
  block->eval();
  std::vector<at::Tensor> expected;
  for (const bool plain : {true, false}) {
    at::Tensor y;
    {
      const AutocastGuard autocast(at::kBFloat16);
      y = plain ? block(data())
                : checkpoint(
                      [&](const at::Tensor& x) {
                        EXPECT_TRUE(AutocastState::current().enabled);
                        EXPECT_EQ(AutocastState::current().dtype, at::kBFloat16);
                        return block(x);
                      },
                      data());
    }
    y.sum().backward();
    EXPECT_FALSE(AutocastState::current().enabled);
    if (plain) expected = gradients(*block);
  }
  expect_equal(gradients(*block), expected);
}

TEST(ActivationCheckpoint, with_autocast_a_shared_parameter_gets_the_gradients_of_later_uses_too) {
  torch::nn::Linear shared(8, 8);
  std::vector<at::Tensor> expected;
  for (const bool plain : {true, false}) {
    at::Tensor y;
    {
      const AutocastGuard autocast(at::kBFloat16);
      y = plain ? shared(data()) : checkpoint(shared, data());
      y = shared(y);
    }
    y.to(at::kFloat).sum().backward();
    if (plain) expected = gradients(*shared);
  }
  const auto found = gradients(*shared);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-2, 1e-2)) << i;
  }
}

TEST(Autocast, guards_restore_the_state_before_and_may_be_nested) {
  const AutocastState before = AutocastState::current();
  {
    const AutocastGuard outer(at::kHalf);
    EXPECT_EQ(torch::mm(data(), data().t()).scalar_type(), at::kHalf);
    {
      const AutocastGuard inner(at::kBFloat16);
      EXPECT_EQ(torch::mm(data(), data().t()).scalar_type(), at::kBFloat16);
      const AutocastGuard off(at::kBFloat16, /*enabled=*/false);
      EXPECT_EQ(torch::mm(data(), data().t()).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(AutocastState::current().dtype, at::kHalf);
  }
  EXPECT_EQ(AutocastState::current().enabled, before.enabled);
  EXPECT_EQ(AutocastState::current().dtype, before.dtype);
  EXPECT_THROW(AutocastGuard(at::kFloat), InvalidArgument);
}

TEST(Autocast, the_end_of_the_outermost_guard_forgets_converted_parameters) {
  const at::Tensor weight = torch::ones({8, 8}, torch::requires_grad());
  const auto result = [&] {
    const AutocastGuard autocast(at::kBFloat16);
    return torch::mm(data(), weight).sum().item<float>();
  };
  const float first = result();
  {
    const torch::NoGradGuard no_grad;
    weight.data().mul_(2);
  }
  EXPECT_EQ(result(), 2 * first);
}

/// One block used three times, and a last layer.
struct Tied : torch::nn::Module {
  Tied() { to(torch::kDouble); }
  at::Tensor forward(at::Tensor x, bool plain) {
    for (int i = 0; i < 3; ++i) x = plain ? block(x) : checkpoint(block, x);
    return last(block(x));
  }
  Block block = register_module("block", Block());
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 3));
};

TEST(ActivationCheckpoint, a_parameter_of_several_parts_is_reduced_once_by_data_parallel_training) {
  Tied reference;
  reference.eval();
  run_ranks(2, [&](Communicator& comm) {
    Tied net;
    net.eval();
    {
      const torch::NoGradGuard no_grad;
      const auto from = reference.parameters(), to = net.parameters();
      for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    }
    DistributedDataParallel ddp(net, comm, {.limits = {.first_bytes = 1, .bytes = 1}});
    for (int step = 0; step < 4; ++step) {
      net.zero_grad();
      const auto batch = [&](int rank) { return data().to(torch::kDouble) + rank + step; };
      ddp.run([&] { return net.forward(batch(comm.rank()), false); }).square().sum().backward();
      comm.barrier();
      if (comm.rank() == 0) {
        reference.zero_grad();
        for (const int rank : {0, 1})
          reference.forward(batch(rank), true).square().sum().backward();
        for (std::size_t i = 0; i < net.parameters().size(); ++i) {
          EXPECT_TRUE(
              torch::allclose(net.parameters()[i].grad(), reference.parameters()[i].grad() / 2))
              << step << ' ' << i;
        }
      }
      comm.barrier();
    }
  });
}

TEST(ActivationCheckpoint, a_parameter_inside_counts_as_used_where_unused_ones_are_searched_for) {
  run_ranks(2, [&](Communicator& comm) {
    Tied net;
    net.eval();
    net.register_parameter("unused", torch::ones({3}, torch::kDouble));
    DistributedDataParallel ddp(net, comm, {.find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      ddp.run([&] { return net.forward(data().to(torch::kDouble), false); }).sum().backward();
      for (const auto& each : net.named_parameters()) {
        EXPECT_EQ(each.value().grad().defined(), each.key() != "unused") << each.key();
      }
    }
  });
}

}  // namespace
}  // namespace hocket::training
