// The cores and caches that this process may use, read once; and how ranks share the cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/core_set.h"

namespace hocket::internal {

/// Caches for data, in bytes; 0: unknown.
struct Caches {
  std::size_t of_core = 0;  // the largest cache that only the threads of a core share (L2)
  /// All last-level caches of the machine together. A quarter of them, if they have more than
  /// most_cache_of_core for each core: hardly any processor has so much, but a hypervisor reports
  /// it where cores of other guests share the cache (docs/decisions/008-near-and-far-cores.md).
  std::size_t of_node = 0;
};
constexpr std::size_t most_cache_of_core = 12 << 20;

/// cpus: the folder in which the kernel describes the cores.
Caches caches_in(const std::filesystem::path& cpus);

struct Machine {
  std::uint64_t id = 0;  // equal for processes of the same running kernel
  CoreSet cores;         // on which this process may run; at least one
  Caches caches;
};

const Machine& machine();

/// The largest number of ranks per core. `ranks` has the cores of each rank. The function takes the
/// maximum over several sets of cores: the cores of all ranks together, with all ranks; and the
/// cores of each rank, with the ranks that may run on no other cores.
double ranks_per_core(std::span<const CoreSet> ranks);

}  // namespace hocket::internal
