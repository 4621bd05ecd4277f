#include "sample.h"

#include <ATen/CPUGeneratorImpl.h>

namespace hocket::gpt {
namespace {

at::Tensor tokens_of(const std::string& text) {
  at::Tensor tokens = torch::empty({1, static_cast<std::int64_t>(text.size())}, torch::kLong);
  for (std::size_t i = 0; i < text.size(); ++i) {
    tokens.data_ptr<std::int64_t>()[i] = static_cast<unsigned char>(text[i]);
  }
  return tokens;
}

}  // namespace

std::string sample(Gpt& model, const std::string& prompt, const SampleOptions& options) {
  const torch::NoGradGuard no_grad;
  const auto context = static_cast<std::size_t>(model->options.sequence);
  at::Generator generator = at::detail::createCPUGenerator(options.seed);
  std::string text = prompt;
  for (std::int64_t i = 0; i < options.bytes; ++i) {
    const std::string seen = text.size() > context ? text.substr(text.size() - context) : text;
    const at::Tensor logits = model->forward(tokens_of(seen))[0][-1].to(torch::kFloat);
    const std::int64_t kept =
        options.temperature == 0 ? 1 : std::min(options.top_k, model->options.vocabulary);
    const auto [values, bytes] = logits.topk(kept);
    const at::Tensor chances =
        torch::softmax(options.temperature == 0 ? values : values / options.temperature, 0);
    const at::Tensor drawn = at::multinomial(chances, 1, false, generator);
    text += static_cast<char>(bytes[drawn.item<std::int64_t>()].item<std::int64_t>());
  }
  return text;
}

}  // namespace hocket::gpt
