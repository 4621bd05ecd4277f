// Who writes what: divides the elements of all tensors between the ranks that hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/checkpoint_manifest.h"

namespace hocket::training::storage {

/// What is written where: the same on all ranks.
struct SavePlan {
  std::vector<StoredTensor> tensors;      // by name; without checksums
  std::vector<std::uint64_t> file_bytes;  // of each rank
  struct Place {
    std::size_t tensor = 0;
    std::size_t piece = 0;
  };
  std::vector<std::vector<Place>> of_rank;  // the pieces that a rank writes, by offset
};

/// ranges: those of each rank, with checked tensors. Elements that one rank holds are written by
/// it. The elements that the same ranks hold are a run, in the order of names, that these ranks
/// divide so that the rank that writes most writes as little as possible.
/// Throws Failure if two ranks describe a tensor differently, or no rank holds an element.
SavePlan plan_save(const std::vector<std::vector<TensorRange>>& ranges);

}  // namespace hocket::training::storage
