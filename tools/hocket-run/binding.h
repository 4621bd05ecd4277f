// The CPUs of each rank of a host: --bind-to, and --map-by among the parts of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cores.h"
#include "cpus.h"

namespace hocket::internal::launch {

/// A part of a host.
enum class Part : std::uint8_t { none, core, numa, socket, l3cache };

/// As in messages: "NUMA node".
const char* name_of(Part part);
/// "1 NUMA node", "3 cores".
std::string parts_text(std::size_t count, Part part);

struct BindingRules {
  Part to = Part::none;             // --bind-to
  Part spread = Part::none;         // ranks go to these parts of the host
  std::int32_t cores_per_rank = 1;  // the least for a rank that is bound to cores
  std::int32_t ranks_per_part = 0;  // that many fill each part before the next; 0: in turn
};

struct Binding {
  Cpus cpus;                 // empty: the rank is not bound
  std::string where;         // for the report: "2 cores", "NUMA node 1"
  bool of_this_host = true;  // false: the CPUs are those of another machine
};

/// The number of parts that have allowed cores. A core without an L3 cache is in none of the parts
/// that Part::l3cache means.
std::size_t count_parts(const std::vector<Core>& cores, Part part);

/// The binding of each rank of the host: a pure function.
///
/// The cores of the host, or of each part that rules.spread names, are divided among the ranks
/// there: consecutive shares of all cores, which differ by at most one core.
/// core: a rank has its share. No rank is bound if a share would have fewer cores than
/// cores_per_rank: ranks that are bound to the same core disturb each other more than ranks that
/// are not bound. If rules.spread is core too, a rank has the whole core to which it goes.
/// numa, socket, l3cache: a rank has all allowed CPUs of the part in which its share begins. Cores
/// without an L3 cache are left out if the rules name l3cache.
std::vector<Binding> bindings(const std::vector<Core>& cores, const BindingRules& rules, int ranks);

/// Why no rank is bound.
std::string no_room_text(const std::vector<Core>& cores, const BindingRules& rules, int ranks);

}  // namespace hocket::internal::launch
