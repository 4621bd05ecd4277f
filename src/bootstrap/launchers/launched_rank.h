// Which launcher started this process, and which rank the launcher's variables give it. Reads only
// an environment: nothing here opens a connection.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bootstrap/launchers/environment.h"

namespace hocket::internal {

/// How the ranks of a job learn the address of rank 0 and the job key.
enum class Exchange {
  pmix,     // from the launcher's PMIx server
  pmi1,     // from the launcher's PMI-1 server
  derived,  // every rank computes where rank 0 listens; the launcher gives no secret
};

struct LaunchedRank {
  std::string launcher;   // "torchrun"
  std::string variables;  // "RANK=1, WORLD_SIZE=4": where the rank was read, for messages
  std::string others;     // variables of other launchers that say something else, for messages
  Exchange exchange = Exchange::derived;
  int rank = -1;          // -1: only the launcher's server knows it
  int ranks = 0;          // 0: the same
  bool one_host = false;  // the launcher says that all ranks run on one host
  bool in_slurm = false;
  // Exchange::derived only:
  std::vector<std::string> hosts;  // the names that the host of rank 0 may have
  std::string host_variable;       // which variable gave them
  std::string job;                 // equal on all ranks of a job, different between jobs
};

/// True if the descriptor is an open socket of this process.
using SocketTest = std::function<bool(int fd)>;

/// *found: false if no launcher's variables are set. An error if a launcher started this process,
/// the variable of its rank is missing, and nothing says that it is the only rank. The launchers,
/// in the order in which they count: torchrun, Open MPI and PMIx, PMI-1, Slurm, and RANK with
/// WORLD_SIZE and MASTER_ADDR. Launchers that are started by others come first, because they leave
/// the others' variables as they are.
Status find_launched_rank(const Environment& environment, const SocketTest& is_socket,
                          LaunchedRank* launched, bool* found);

/// True if a launcher other than hocket-run sets this variable for each rank. hocket-run removes
/// these variables from the environment of its ranks, so that a rank of hocket-run that has one was
/// started by another launcher inside hocket-run. PMIX_RANK is none of them: MPI_Init of a process
/// that no mpirun started sets it.
bool marks_rank(std::string_view variable);
bool has_mark(const Environment& environment);

/// The rank that srun's variables give, whatever other launchers say.
Status srun_rank(const Environment& environment, LaunchedRank* launched);

}  // namespace hocket::internal
