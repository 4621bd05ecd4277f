// The training, for a main() that knows nothing of libtorch.
#pragma once

#include <hocket/hocket.hpp>

#include "options.h"

namespace hocket::gpt {

/// Runs a Trainer.
void train(const Options& options, Communicator& comm);

}  // namespace hocket::gpt
