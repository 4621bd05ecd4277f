// The hosts of a job, as --hosts and a host file name them.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "base/status.h"

namespace hocket::internal::launch {

struct HostSlots {
  std::string name;             // empty: this host
  int slots = 0;                // the number of ranks that it may have; 0: not given
  bool remote = false;          // reached by ssh
  std::vector<int> ranks = {};  // that run there, in ascending order
  int parts = 0;                // of those that --map-by ppr:N:PART names; 0: not counted
};

/// Parses "a:2,b:2,[fd77::1]:3,c". In place of a name there may be a list as Slurm writes it:
/// "h[1-2]:4" is "h1:4,h2:4". A host that is named several times has the sum of its slots, each
/// time without a number counting as 1; its place is that of its first name.
Status parse_hosts(const std::string& text, std::vector<HostSlots>* hosts);

/// Parses a host file: one host on each line, as in Open MPI (`a slots=2 max_slots=4`), MPICH
/// (`a:2`) or Slurm (`a` on a line for each rank, or a list). The slots of a host that has several
/// lines add up; its place is that of its first line. A `#` begins a comment. name: of the file,
/// for errors.
Status parse_host_file(std::istream& text, const std::string& name, std::vector<HostSlots>* hosts);
Status read_host_file(const std::string& path, std::vector<HostSlots>* hosts);

}  // namespace hocket::internal::launch
