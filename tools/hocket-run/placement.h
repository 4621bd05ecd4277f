// Which ranks run on which host: --map-by, and the numbers of ranks that the hosts may have.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "binding.h"
#include "hosts.h"

namespace hocket::internal::launch {

/// The value of --map-by.
struct MapBy {
  bool in_turn = false;    // node: ranks go to the hosts in turn; else they fill host after host
  int ranks_each = 0;      // ppr:N:...: N for each host or part; 0: as many as each host may have
  Part part = Part::none;  // the parts of a host to which ranks go; none: --map-by names no part
  int cores_per_rank = 0;  // PE=n; 0: not given
  /// True if ranks can be placed only when the parts of each host have been counted.
  bool needs_parts() const { return ranks_each != 0 && part != Part::none; }
};

/// Parses slot, node, core, l3cache, numa, socket or ppr:N:... of one of the last five, each with
/// an optional :PE=n. Refuses other words of mpirun by name, and says what to write instead.
Status parse_map_by(const std::string& text, MapBy* map_by);

/// How ranks are bound. bind_to is core, l3cache, numa, socket, package or none; empty: not given,
/// so that ranks are bound to cores with PE=n, else to the parts of --map-by, if it has any.
Status binding_rules(const std::string& bind_to, const MapBy& map_by, BindingRules* rules);

/// Without hosts, the job runs on this one.
Status complete_hosts(const MapBy& map_by, int ranks, std::vector<HostSlots>* hosts);

/// Decides which ranks run on each host: a pure function. *ranks = 0: as many as the hosts may
/// have. Afterwards hosts has only hosts with ranks, rank 0's first. source: the option or the file
/// that has the hosts, for errors. If map_by.needs_parts(), each host needs the number of its
/// parts.
Status place_ranks(const MapBy& map_by, const std::string& source, int* ranks,
                   std::vector<HostSlots>* hosts);

}  // namespace hocket::internal::launch
