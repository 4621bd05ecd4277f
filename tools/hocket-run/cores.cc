#include "cores.h"

#include <algorithm>

namespace hocket::internal::launch {
namespace {

int number_of(hwloc_obj_t object) {
  return object == nullptr ? 0 : static_cast<int>(object->os_index);
}

}  // namespace

Cores cores_of(hwloc_topology_t topology, const Cpus& allowed) {
  Cores cores;
  cores.of_this_host = hwloc_topology_is_thissystem(topology) != 0;
  hwloc_obj_t last = nullptr;  // the core, or the hardware thread if hwloc knows no cores
  for (hwloc_obj_t thread = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, nullptr);
       thread != nullptr; thread = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, thread)) {
    const int cpu = static_cast<int>(thread->os_index);
    if (cores.of_this_host && !std::ranges::binary_search(allowed, cpu)) continue;
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, thread);
    if (core == nullptr) core = thread;
    if (core != last) {
      // Memory without cores near it belongs to all nodesets; its node has a higher number.
      const int numa = std::max(hwloc_bitmap_first(thread->nodeset), 0);
      const hwloc_obj_t socket =
          hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, thread);
      const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L3CACHE, thread);
      const int l3cache = cache == nullptr ? no_cache : static_cast<int>(cache->logical_index);
      cores.list.push_back({{}, numa, number_of(socket), l3cache});
      last = core;
    }
    cores.list.back().cpus.push_back(cpu);
  }
  for (Core& core : cores.list) std::ranges::sort(core.cpus);
  return cores;
}

Status read_cores(const Cpus& allowed, Cores* cores) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return system_error("hwloc cannot make a topology");
  const bool loaded = hwloc_topology_load(topology) == 0;
  if (loaded) *cores = cores_of(topology, allowed);
  hwloc_topology_destroy(topology);
  if (!loaded) return system_error("hwloc cannot read the topology of this host");
  return {};
}

}  // namespace hocket::internal::launch
