// Compiled twice: against Open MPI and against MPICH.
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

const char* backend_name() {
#ifdef OPEN_MPI
  return "openmpi";
#else
  return "mpich";
#endif
}

bool backend_start(const std::string&, const std::string&, std::string* error) {
  if (!explain(MPI_Init(nullptr, nullptr), error)) return false;
  return explain(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), error);
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
  void* memory = nullptr;
  if (shared) return MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory : nullptr;
  return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

bool backend_all_reduce(const float* in, float* out, std::size_t count, std::string* error) {
  return explain(
      MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), error);
}

void backend_stop() { MPI_Finalize(); }

}  // namespace hocket::peers
