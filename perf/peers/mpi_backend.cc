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

namespace {

int run_varying(const Call& c, MPI_Comm all) {
  const int own = static_cast<int>(c.own_count);
  const int *counts = c.int_counts.data(), *starts = c.int_starts.data();
  switch (c.collective) {
    case Collective::all_gather:
      return MPI_Allgatherv(c.in, own, MPI_FLOAT, c.out, counts, starts, MPI_FLOAT, all);
    case Collective::reduce_scatter:
      return MPI_Reduce_scatter(c.in, c.out, counts, MPI_FLOAT, MPI_SUM, all);
    case Collective::gather:
      return MPI_Gatherv(c.in, own, MPI_FLOAT, c.out, counts, starts, MPI_FLOAT, 0, all);
    case Collective::scatter:
      return MPI_Scatterv(c.in, counts, starts, MPI_FLOAT, c.out, own, MPI_FLOAT, 0, all);
    case Collective::alltoall:
      return MPI_Alltoallv(c.in, counts, starts, MPI_FLOAT, c.out, counts, starts, MPI_FLOAT, all);
    default:
      return MPI_ERR_ARG;
  }
}

/// A message to the other rank of the pair, and one back.
int run_round_trip(const Call& c, MPI_Comm all) {
  const int n = static_cast<int>(c.count), rank = backend_rank(), ranks = backend_ranks();
  const int partner = (rank + ranks / 2) % ranks;
  const auto send = [&] { return MPI_Send(c.in, n, MPI_FLOAT, partner, 0, all); };
  const auto receive = [&] {
    return MPI_Recv(c.out, n, MPI_FLOAT, partner, 0, all, MPI_STATUS_IGNORE);
  };
  const bool first = rank < partner;
  const int code = first ? send() : receive();
  if (code != MPI_SUCCESS) return code;
  return first ? receive() : send();
}

int run(const Call& c, MPI_Comm all) {
  const int n = static_cast<int>(c.count);
  switch (c.collective) {
    case Collective::all_reduce:
      return MPI_Allreduce(c.in, c.out, n, MPI_FLOAT, MPI_SUM, all);
    case Collective::all_gather:
      return MPI_Allgather(c.in, n, MPI_FLOAT, c.out, n, MPI_FLOAT, all);
    case Collective::reduce_scatter:
      return MPI_Reduce_scatter_block(c.in, c.out, n, MPI_FLOAT, MPI_SUM, all);
    case Collective::broadcast:
      return MPI_Bcast(c.out, n, MPI_FLOAT, 0, all);
    case Collective::reduce:
      return MPI_Reduce(c.in, c.out, n, MPI_FLOAT, MPI_SUM, 0, all);
    case Collective::gather:
      return MPI_Gather(c.in, n, MPI_FLOAT, c.out, n, MPI_FLOAT, 0, all);
    case Collective::scatter:
      return MPI_Scatter(c.in, n, MPI_FLOAT, c.out, n, MPI_FLOAT, 0, all);
    case Collective::alltoall:
      return MPI_Alltoall(c.in, n, MPI_FLOAT, c.out, n, MPI_FLOAT, all);
    case Collective::barrier:
      return MPI_Barrier(all);
    case Collective::latency:
      return run_round_trip(c, all);
    default:
      return MPI_ERR_ARG;
  }
}

}  // namespace

bool backend_run(const Call& call, std::string* error) {
  return explain(call.varying ? run_varying(call, MPI_COMM_WORLD) : run(call, MPI_COMM_WORLD),
                 error);
}

void backend_progress() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

void backend_stop() { MPI_Finalize(); }

}  // namespace hocket::peers
