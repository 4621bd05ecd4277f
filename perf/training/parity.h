// Whether the gradients of several ranks are those of one process.
#pragma once

#include <nlohmann/json.hpp>

#include "modes.h"

namespace lab {

/// Collective. Trains a few steps with the mode "hocket" and compares, in each, the gradients with
/// those of a model that this process trains alone on the batches of all ranks. The result:
///   bit_equal: whether all bits are those of the sum over the batches, one after another,
///   divided by the number of ranks;
///   full_batch: the largest difference to the gradients of all batches in one, divided by the
///   largest gradient;
///   ranks_equal: whether all ranks have the same parameters after the steps.
nlohmann::json compare_gradients(const Workload& workload, hocket::Communicator& comm,
                                 const ModeOptions& options);

}  // namespace lab
