// The process of a rank, as its agent sees it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "cpus.h"
#include "relay.h"

namespace hocket::internal::launch {

struct RankProcess {
  int rank = 0;
  std::string program;
  pid_t pid = 0;  // also its process group
  bool running = false;
  UniqueFd output[2];  // read ends of its standard output and error; or only [0], its terminal
  Relay relay[2];
  UniqueFd exec_error;  // holds an errno if the program could not be started
  UniqueFd input;       // write end of its standard input; empty: /dev/null
};

struct Command {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // complete
  int record = -1;                       // descriptors that the rank inherits
  int listener = -1;
  int terminal = -1;             // its standard output and standard error; -1: they are pipes
  Cpus cpus;                     // on which the rank runs; empty: on those of this process
  unsigned long file_limit = 0;  // soft RLIMIT_NOFILE to restore
  bool wants_input = false;
};

/// Starts the program in a process group of its own. With a terminal, process->output[0] is its
/// master already. The kernel kills that process when this
/// process dies. A program that cannot be run is no error here: the process exits with status 127
/// or 126, and exec_failure() returns the reason.
Status start_rank(const Command& command, RankProcess* process);

/// After the process was reaped: why its program was not run; empty: it was run.
std::string exec_failure(const RankProcess& process);

}  // namespace hocket::internal::launch
