// Whether this process also uses an MPI library: MPI and hocket then share the conversation with
// the launcher's server.
#pragma once

namespace hocket::internal {

enum class MpiState {
  none,     // no MPI library is loaded
  loaded,   // MPI_Init has not been called yet
  running,  // MPI_Init has been called
};

/// Looks for a library that is loaded already, and loads none.
MpiState mpi_state();

/// The first number of the version, if the library is Open MPI; else 0.
int open_mpi_major();

}  // namespace hocket::internal
