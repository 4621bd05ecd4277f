// Text that a model writes.
#pragma once

#include <string>

#include "model.h"

namespace hocket::gpt {

struct SampleOptions {
  std::int64_t bytes = 200;
  double temperature = 0.8;  // 0: always the likeliest byte
  std::int64_t top_k = 40;   // only the likeliest so many bytes are drawn
  std::uint64_t seed = 1;
};

/// The prompt (at least one byte) and what the model goes on with. Depends on the weights, the
/// prompt and the options alone.
std::string sample(Gpt& model, const std::string& prompt, const SampleOptions& options);

}  // namespace hocket::gpt
