// A language model over bytes, in the shape of GPT-2: blocks with the normalisation before each
// part, learned positions, GELU, and one matrix that is both the embedding and the output.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace hocket::gpt {

struct ModelOptions {
  std::int64_t vocabulary = 256;
  std::int64_t layers = 4;
  std::int64_t width = 256;
  std::int64_t heads = 4;       // a divisor of width
  std::int64_t sequence = 128;  // tokens that the model sees at once, at most
  bool operator==(const ModelOptions&) const = default;
};

/// How a block runs: by calling it, or so that its activations are computed again in backward.
using RunBlock = std::function<at::Tensor(const std::function<at::Tensor(at::Tensor)>& block,
                                          const at::Tensor& input)>;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const ModelOptions& o)
      : heads(o.heads),
        norm_attention(register_module(
            "norm_attention", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        norm_mlp(register_module("norm_mlp",
                                 torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        query_key_value(
            register_module("query_key_value", torch::nn::Linear(o.width, 3 * o.width))),
        attention_out(register_module("attention_out", torch::nn::Linear(o.width, o.width))),
        mlp_in(register_module("mlp_in", torch::nn::Linear(o.width, 4 * o.width))),
        mlp_out(register_module("mlp_out", torch::nn::Linear(4 * o.width, o.width))) {}

  /// x: [batch, length, width], and so is the result.
  at::Tensor forward(at::Tensor x) {
    x = x + attention(norm_attention(x));
    return x + mlp_out(at::gelu(mlp_in(norm_mlp(x)), "tanh"));
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm_attention, norm_mlp;
  torch::nn::Linear query_key_value, attention_out, mlp_in, mlp_out;

 private:
  at::Tensor attention(const at::Tensor& x) {
    const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    std::vector<at::Tensor> parts = query_key_value(x).chunk(3, -1);
    for (at::Tensor& part : parts) {
      part = part.view({batch, length, heads, width / heads}).transpose(1, 2);
    }
    const at::Tensor mixed =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    return attention_out(mixed.transpose(1, 2).reshape({batch, length, width}));
  }
};
TORCH_MODULE(Block);

/// The weights depend on the state of torch's random generator.
struct GptImpl : torch::nn::Module {
  explicit GptImpl(const ModelOptions& o)
      : options(o),
        tokens(register_module("tokens", torch::nn::Embedding(o.vocabulary, o.width))),
        positions(register_module("positions", torch::nn::Embedding(o.sequence, o.width))),
        norm(
            register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))) {
    for (std::int64_t i = 0; i < o.layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block(o)));
    }
    initialise();
  }

  /// input: [batch, length] of int64; length is at most options.sequence. Returns the logits of the
  /// next token: [batch, length, vocabulary].
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = tokens(input) + positions->weight.slice(0, 0, input.size(1));
    for (Block& block : blocks) {
      const auto call = [&block](at::Tensor from) { return block->forward(std::move(from)); };
      x = run_block ? run_block(call, x) : call(x);
    }
    return at::linear(norm(x), tokens->weight);
  }
  /// The mean cross-entropy, in nats a token. Both: [batch, length] of int64.
  at::Tensor loss(const at::Tensor& input, const at::Tensor& target) {
    const at::Tensor logits = forward(input).to(at::kFloat);
    return at::cross_entropy_loss(logits.view({-1, options.vocabulary}), target.reshape({-1}));
  }
  std::int64_t parameter_count() const {
    std::int64_t sum = 0;
    for (const at::Tensor& parameter : parameters()) sum += parameter.numel();
    return sum;
  }

  ModelOptions options;
  torch::nn::Embedding tokens, positions;
  torch::nn::LayerNorm norm;
  std::vector<Block> blocks;
  RunBlock run_block;  // empty: call the block

 private:
  /// As in GPT-2: standard deviation 0.02; outputs of a block less, because 2 x layers of them add
  /// up.
  void initialise() {
    const torch::NoGradGuard no_grad;
    const double of_outputs = 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers));
    for (const auto& named : named_parameters()) {
      const std::string& name = named.key();
      at::Tensor parameter = named.value();
      if (name.find("norm") != std::string::npos) continue;
      if (name.ends_with("bias")) {
        parameter.zero_();
      } else {
        parameter.normal_(0, name.find("_out") != std::string::npos ? of_outputs : 0.02);
      }
    }
  }
};
TORCH_MODULE(Gpt);

}  // namespace hocket::gpt
