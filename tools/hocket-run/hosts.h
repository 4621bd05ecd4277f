// The hosts of a job, as --hosts and a host file name them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace hocket::internal::launch {

struct HostSlots {
  std::string name;  // empty: this host
  int slots = 0;
  bool remote = false;  // reached by ssh
};

/// Parses "a:2,b:2,[fd77::1]:3,c"; a host without a number has 1 slot.
Status parse_hosts(const std::string& text, std::vector<HostSlots>* hosts);

/// Reads a host file: one host on each line, as in Open MPI (`a slots=2 max_slots=4`), MPICH
/// (`a:2`) or Slurm (`a` on a line for each rank). The slots of a host that has several lines add
/// up; its place is that of its first line. A `#` begins a comment.
Status read_host_file(const std::string& path, std::vector<HostSlots>* hosts);

}  // namespace hocket::internal::launch
