// The cores of this host, as hwloc describes them.
#pragma once

#include <hwloc.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "cpus.h"

namespace hocket::internal::launch {

/// The number of the L3 cache of a core that has none.
inline constexpr int no_cache = -1;

struct Core {
  Cpus cpus;  // its hardware threads that are allowed
  int numa = 0;
  int socket = 0;
  int l3cache = no_cache;  // the logical number of hwloc
};

struct Cores {
  std::vector<Core> list;    // in the order of hwloc: those of a socket, or NUMA node, together
  bool of_this_host = true;  // false: a variable of hwloc names another machine
};

/// The cores of a topology that have allowed CPUs. A topology of another machine has only allowed
/// CPUs.
Cores cores_of(hwloc_topology_t topology, const Cpus& allowed);

/// Loads the topology with hwloc. HWLOC_SYNTHETIC, HWLOC_XMLFILE and HWLOC_FSROOT give hwloc
/// another topology; with HWLOC_THISSYSTEM=1 it counts as that of this host.
Status read_cores(const Cpus& allowed, Cores* cores);

}  // namespace hocket::internal::launch
