// The CPUs of each rank of a host with --bind-to core or numa.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpus.h"

namespace hocket::internal::launch {

enum class BindTo : std::uint8_t { none, core, numa };

struct Core {
  Cpus cpus;  // its hardware threads that are allowed
  int node = 0;
};

/// The cores that have allowed CPUs, those of a NUMA node together. system: /sys/devices/system.
/// Where it has no description, every CPU counts as a core of node 0.
std::vector<Core> read_cores(const Cpus& allowed, const std::string& system);

/// "1 core", "3 cores".
std::string cores_text(std::size_t count);

struct Binding {
  Cpus cpus;          // empty: the rank is not bound
  std::string where;  // for the report: "2 cores", "NUMA node 1"
};

/// The binding of each rank of the host.
///
/// core: ranks have disjoint shares of the cores, which differ by at most one core. No rank is
/// bound if there are more ranks than cores, because several ranks would then be bound to the
/// same core while other jobs choose the same one.
/// numa: a rank has all allowed CPUs of a NUMA node; a node with more cores has more ranks.
std::vector<Binding> bindings(const std::vector<Core>& cores, BindTo to, int ranks);

}  // namespace hocket::internal::launch
