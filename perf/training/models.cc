#include "models.h"

#include <hocket/training/torch/activation_checkpoint.hpp>
#include <stdexcept>

namespace lab {
namespace {

namespace nn = torch::nn;

constexpr int sequence = 128;    // tokens
constexpr int vocabulary = 256;  // a token is a byte

/// Linear layers with ReLU between them.
class Mlp final : public Model {
 public:
  Mlp(const std::vector<std::int64_t>& widths, bool bias) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      layers_->push_back(nn::Linear(nn::LinearOptions(widths[i], widths[i + 1]).bias(bias)));
    }
    register_module("layers", layers_);
  }
  at::Tensor loss(const Batch& batch) override {
    at::Tensor x = batch.data;
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      x = layers_->at<nn::LinearImpl>(i).forward(x);
      if (i + 1 < layers_->size()) x = torch::relu(x);
    }
    return torch::mse_loss(x, batch.target);
  }

 private:
  nn::ModuleList layers_;
};

class Block final : public nn::Module {
 public:
  Block(std::int64_t width, std::int64_t heads) : heads_(heads) {
    const auto norm = nn::LayerNormOptions({width});
    before_attention_ = register_module("before_attention", nn::LayerNorm(norm));
    qkv_ = register_module("qkv", nn::Linear(width, 3 * width));
    attended_ = register_module("attended", nn::Linear(width, width));
    before_mlp_ = register_module("before_mlp", nn::LayerNorm(norm));
    up_ = register_module("up", nn::Linear(width, 4 * width));
    down_ = register_module("down", nn::Linear(4 * width, width));
  }
  at::Tensor forward(at::Tensor x) {
    const auto rows = x.size(0), tokens = x.size(1), width = x.size(2);
    const auto parts = qkv_(before_attention_(x)).chunk(3, -1);
    const auto by_head = [&](const at::Tensor& part) {
      return part.view({rows, tokens, heads_, width / heads_}).transpose(1, 2);
    };
    const at::Tensor mixed =
        at::scaled_dot_product_attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]),
                                         /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
    x = x + attended_(mixed.transpose(1, 2).reshape({rows, tokens, width}));
    return x + down_(torch::gelu(up_(before_mlp_(x))));
  }

 private:
  std::int64_t heads_;
  nn::LayerNorm before_attention_{nullptr}, before_mlp_{nullptr};
  nn::Linear qkv_{nullptr}, attended_{nullptr}, up_{nullptr}, down_{nullptr};
};

/// A block has no random numbers.
const hocket::training::CheckpointOptions checkpointed_block{.name = "block",
                                                             .preserve_rng = false};

class Gpt final : public Model {
 public:
  Gpt(int layers, std::int64_t width, std::int64_t heads)
      : tokens_(register_module("tokens", nn::Embedding(vocabulary, width))),
        positions_(register_module("positions", nn::Embedding(sequence, width))) {
    for (int i = 0; i < layers; ++i) blocks_->push_back(std::make_shared<Block>(width, heads));
    register_module("blocks", blocks_);
    norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    head_ = register_module("head", nn::Linear(nn::LinearOptions(width, vocabulary).bias(false)));
  }
  at::Tensor loss(const Batch& batch) override {
    at::Tensor x = embedded(batch);
    for (const auto& block : *blocks_) {
      const auto run = [block](const at::Tensor& in) { return block->as<Block>()->forward(in); };
      x = checkpoints_activations ? hocket::training::checkpoint(checkpointed_block, run, x)
                                  : run(x);
    }
    const at::Tensor logits = head_(norm_(x));
    return torch::nn::functional::cross_entropy(logits.view({-1, vocabulary}),
                                                batch.target.reshape({-1}));
  }
  std::int64_t bytes_saved_by_checkpoints(const Batch& batch) override {
    const at::Tensor x = embedded(batch);
    std::int64_t saved = 0;
    for (const auto& block : *blocks_) {
      const auto run = [block](const at::Tensor& in) { return block->as<Block>()->forward(in); };
      const auto bytes = hocket::training::activation_bytes(checkpointed_block, run, x);
      saved += bytes.plain - bytes.checkpointed;
    }
    return saved;
  }

 private:
  at::Tensor embedded(const Batch& batch) {
    return tokens_(batch.data) + positions_(torch::arange(batch.data.size(1)));
  }
  nn::Embedding tokens_, positions_;
  nn::ModuleList blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
};

constexpr int tensor_count = 64;

std::vector<std::int64_t> tensor_widths() {
  std::vector<std::int64_t> widths;
  for (int i = 0; i <= tensor_count; ++i) widths.push_back(i % 2 == 0 ? 64 : 128);
  return widths;
}

}  // namespace

Workload workload(const std::string& name, int rows) {
  for (Workload each : {Workload{"mlp", 256, false}, Workload{"tensors", 16, false},
                        Workload{"gpt10m", 4, true}, Workload{"gpt85m", 2, true}}) {
    if (each.name != name) continue;
    if (rows > 0) each.rows = rows;
    return each;
  }
  throw std::invalid_argument("no workload '" + name + "': mlp, tensors, gpt10m or gpt85m");
}

std::shared_ptr<Model> make_model(const Workload& workload) {
  torch::manual_seed(1);
  if (workload.name == "mlp") {
    return std::make_shared<Mlp>(std::vector<std::int64_t>(9, 1024), true);
  }
  if (workload.name == "tensors") return std::make_shared<Mlp>(tensor_widths(), false);
  if (workload.name == "gpt10m") return std::make_shared<Gpt>(6, 384, 6);
  return std::make_shared<Gpt>(12, 768, 12);
}

Batch make_batch(const Workload& workload, int rank, int step) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(
      static_cast<std::uint64_t>(1'000'003 * (rank + 1) + step));
  if (workload.adamw) {
    const at::Tensor text =
        torch::randint(0, vocabulary, {workload.rows, sequence + 1}, random, torch::kLong);
    return {text.narrow(1, 0, sequence).contiguous(), text.narrow(1, 1, sequence).contiguous()};
  }
  const std::int64_t width = workload.name == "mlp" ? 1024 : 64;
  return {torch::randn({workload.rows, width}, random),
          torch::randn({workload.rows, width}, random)};
}

Batch joined(const Batch& first, const Batch& second) {
  return {at::cat({first.data, second.data}), at::cat({first.target, second.target})};
}

}  // namespace lab
