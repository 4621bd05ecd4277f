#include <cstdlib>

#include "backend.h"
#include "hocket/hocket.h"

namespace hocket::peers {
namespace {

hocketComm_t comm = nullptr;
hocketStream_t own_thread = nullptr;

bool explain(hocketResult_t result, std::string* error) {
  if (result != hocketSuccess) *error = hocketGetLastError(comm);
  return result == hocketSuccess;
}

}  // namespace

const char* backend_name() { return "hocket"; }

bool backend_start(std::string* error) {
  const hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
  return explain(hocketCommInitFromEnv(&comm, &config), error);
}

std::string backend_version() {
  return "hocket " + std::to_string(HOCKET_MAJOR) + "." + std::to_string(HOCKET_MINOR) + "." +
         std::to_string(HOCKET_PATCH);
}

int backend_rank() {
  int rank = -1;
  (void)hocketCommUserRank(comm, &rank);
  return rank;
}

int backend_ranks() {
  int ranks = 0;
  (void)hocketCommCount(comm, &ranks);
  return ranks;
}

void* backend_allocate(std::size_t bytes, bool shared) {
  if (!shared) return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  void* memory = nullptr;
  return hocketMemAlloc(&memory, bytes) == hocketSuccess ? memory : nullptr;
}

bool backend_in_place(Collective collective) { return collective == Collective::broadcast; }

namespace {

hocketResult_t run_varying(const Call& c) {
  const auto type = hocketFloat32;
  const std::size_t *counts = c.blocks.counts.data(), *starts = c.blocks.starts.data();
  switch (c.collective) {
    case Collective::all_gather:
      return hocketAllGatherV(c.in, c.own_count, c.out, counts, starts, type, comm, own_thread);
    case Collective::reduce_scatter:
      return hocketReduceScatterV(c.in, c.out, counts, type, hocketSum, comm, own_thread);
    case Collective::gather:
      return hocketGatherV(c.in, c.own_count, c.out, counts, starts, type, 0, comm, own_thread);
    case Collective::scatter:
      return hocketScatterV(c.in, counts, starts, c.out, c.own_count, type, 0, comm, own_thread);
    case Collective::alltoall:
      return hocketAlltoAllV(c.in, counts, starts, c.out, counts, starts, type, comm, own_thread);
    default:
      return hocketInvalidArgument;
  }
}

/// A message to the other rank of the pair, and one back.
hocketResult_t run_round_trip(const Call& c) {
  const int rank = backend_rank(), ranks = backend_ranks();
  const int partner = (rank + ranks / 2) % ranks;
  const auto send = [&] {
    return hocketSend(c.in, c.count, hocketFloat32, partner, comm, own_thread);
  };
  const auto receive = [&] {
    return hocketRecv(c.out, c.count, hocketFloat32, partner, comm, own_thread);
  };
  const bool first = rank < partner;
  const hocketResult_t result = first ? send() : receive();
  if (result != hocketSuccess) return result;
  return first ? receive() : send();
}

hocketResult_t run(const Call& c) {
  const auto type = hocketFloat32;
  const auto sum = hocketSum;
  switch (c.collective) {
    case Collective::all_reduce:
      return hocketAllReduce(c.in, c.out, c.count, type, sum, comm, own_thread);
    case Collective::all_gather:
      return hocketAllGather(c.in, c.out, c.count, type, comm, own_thread);
    case Collective::reduce_scatter:
      return hocketReduceScatter(c.in, c.out, c.count, type, sum, comm, own_thread);
    case Collective::broadcast:
      return hocketBroadcast(c.in, c.out, c.count, type, 0, comm, own_thread);
    case Collective::reduce:
      return hocketReduce(c.in, c.out, c.count, type, sum, 0, comm, own_thread);
    case Collective::gather:
      return hocketGather(c.in, c.out, c.count, type, 0, comm, own_thread);
    case Collective::scatter:
      return hocketScatter(c.in, c.out, c.count, type, 0, comm, own_thread);
    case Collective::alltoall:
      return hocketAlltoAll(c.in, c.out, c.count, type, comm, own_thread);
    case Collective::barrier:
      return hocketBarrier(comm, own_thread);
    case Collective::latency:
      return run_round_trip(c);
    default:
      return hocketInvalidArgument;
  }
}

}  // namespace

bool backend_run(const Call& call, std::string* error) {
  return explain(call.varying ? run_varying(call) : run(call), error);
}

void backend_progress() {}  // a call that has returned left nothing to do

void backend_stop() {
  (void)hocketCommFinalize(comm);
  (void)hocketCommDestroy(comm);
}

}  // namespace hocket::peers
