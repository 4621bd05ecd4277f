// What this process may use of the machine: looked up once. And how ranks share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/core_set.h"

namespace hocket::internal {

struct Machine {
  std::uint64_t id = 0;              // equal for processes that one kernel runs
  CoreSet cores;                     // that this process may run on; at least one
  std::size_t last_level_cache = 0;  // bytes, of the largest cache; 0: unknown
  std::size_t core_cache = 0;  // bytes, of the largest cache a core has to itself (L2); 0: unknown
};

const Machine& machine();

/// Ranks per core where they are most crowded: among the cores of all of them, or among those of
/// one of them, which the ranks that may run nowhere else share. One set for each rank.
double crowd(std::span<const CoreSet> ranks);

}  // namespace hocket::internal
