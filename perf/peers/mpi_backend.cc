// Compiled once against each MPI.
#define OMPI_SKIP_MPICXX 1  // the C API only
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdlib>

#include "backend.h"

namespace hocket::peers {
namespace {

bool explain(int code, std::string* error) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  *error = text;
  return false;
}

}  // namespace

const char* backend_name() { return PEER_NAME; }

bool backend_start(std::string* error) {
  if (!explain(MPI_Init(nullptr, nullptr), error)) return false;
  return explain(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), error);
}

std::string backend_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version = text;
  return version.substr(0, version.find_first_of(",\n"));
}

int backend_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int backend_ranks() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

void* backend_allocate(std::size_t bytes, bool shared) {
  if (!shared) return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  void* memory = nullptr;
  const MPI_Aint size = static_cast<MPI_Aint>(bytes);
  return MPI_Alloc_mem(size, MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory : nullptr;
}

bool backend_in_place(Collective collective) { return collective == Collective::broadcast; }

bool backend_run(Collective collective, float* in, float* out, std::size_t count,
                 std::string* error) {
  const int n = static_cast<int>(count);
  int code = MPI_ERR_ARG;
  if (collective == Collective::all_reduce) {
    code = MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (collective == Collective::all_gather) {
    code = MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (collective == Collective::reduce_scatter) {
    code = MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (collective == Collective::broadcast) {
    code = MPI_Bcast(out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
  }
  return explain(code, error);
}

void backend_progress() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

void backend_stop() { MPI_Finalize(); }

}  // namespace hocket::peers
