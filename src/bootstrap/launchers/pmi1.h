// A conversation with a PMI-1 server: that of MPICH's Hydra (with and without -pmi-port) or of
// `srun --mpi=pmi2`. Lines are in pmi_line.h.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "bootstrap/launchers/environment.h"
#include "bootstrap/launchers/join_wait.h"
#include "bootstrap/launchers/pmi_line.h"

namespace hocket::internal {

/// True if the descriptor is an open socket of this process.
bool is_open_socket(int fd);

class Pmi1 {
 public:
  /// Who begins and ends the conversation of this process, of which there can be only one.
  enum class Manners {
    whole,      // this object: no MPI library takes part
    introduce,  // this object begins it, MPI_Init goes on; if MPI_Init is never called, the
                // conversation ends when the process exits
    guest,      // MPI_Init has begun it and MPI_Finalize ends it
  };

  /// Opens the conversation with the server that PMI_FD or PMI_PORT names.
  static Status open(const Environment& environment, Manners manners, const JoinWait& wait,
                     std::unique_ptr<Pmi1>* out);
  /// Leaves a connection to PMI_PORT open that close() has not ended. Hydra kills the ranks as soon
  /// as a conversation ends without `finalize`, often before the program has printed its error.
  ~Pmi1() { own_.release(); }
  Pmi1(const Pmi1&) = delete;
  Pmi1& operator=(const Pmi1&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Rank 0 publishes *text, which the others receive. All ranks of the job call it.
  Status broadcast(const JoinWait& wait, std::string* text);
  /// Ends the conversation as the manners say.
  Status close(const JoinWait& wait);

 private:
  Pmi1() = default;
  Status connect(const Environment& environment, const JoinWait& wait);
  Status introduce(const JoinWait& wait);
  Status ask(const PmiLine& question, const char* answer, const JoinWait& wait, PmiLine* out);
  Status read_line(const JoinWait& wait, PmiLine* out);

  UniqueFd own_;  // PMI_PORT: the connection; PMI_FD belongs to the process
  int fd_ = -1;
  Manners manners_ = Manners::whole;
  int rank_ = -1;
  int ranks_ = 0;
  std::string received_;
};

}  // namespace hocket::internal
