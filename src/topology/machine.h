// The cores and caches that this process may use, read once; and how ranks share the cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/core_set.h"

namespace hocket::internal {

struct Machine {
  std::uint64_t id = 0;              // equal for processes of the same running kernel
  CoreSet cores;                     // on which this process may run; at least one
  std::size_t last_level_cache = 0;  // bytes of the largest cache; 0: unknown
  std::size_t core_cache = 0;        // bytes of the largest cache of a single core (L2); 0: unknown
  bool is_guest = false;             // of a hypervisor, which shares the caches among its guests
};

const Machine& machine();

/// The largest number of ranks per core. `ranks` has the cores of each rank. The function takes the
/// maximum over several sets of cores: the cores of all ranks together, with all ranks; and the
/// cores of each rank, with the ranks that may run on no other cores.
double ranks_per_core(std::span<const CoreSet> ranks);

}  // namespace hocket::internal
