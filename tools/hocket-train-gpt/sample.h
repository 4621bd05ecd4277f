// Text that a model writes.
#pragma once

#include <string>

#include "learner.h"
#include "model.h"

namespace hocket::gpt {

/// See Learner::sample.
std::string sample(Gpt& model, const std::string& prompt, const SampleOptions& options);

}  // namespace hocket::gpt
