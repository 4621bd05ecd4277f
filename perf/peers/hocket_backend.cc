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

bool backend_run(Collective collective, float* in, float* out, std::size_t count,
                 std::string* error) {
  hocketResult_t result = hocketInvalidArgument;
  if (collective == Collective::all_reduce) {
    result = hocketAllReduce(in, out, count, hocketFloat32, hocketSum, comm, own_thread);
  } else if (collective == Collective::all_gather) {
    result = hocketAllGather(in, out, count, hocketFloat32, comm, own_thread);
  } else if (collective == Collective::reduce_scatter) {
    result = hocketReduceScatter(in, out, count, hocketFloat32, hocketSum, comm, own_thread);
  } else if (collective == Collective::broadcast) {
    result = hocketBroadcast(in, out, count, hocketFloat32, 0, comm, own_thread);
  }
  return explain(result, error);
}

void backend_progress() {}  // a call that has returned left nothing to do

void backend_stop() {
  (void)hocketCommFinalize(comm);
  (void)hocketCommDestroy(comm);
}

}  // namespace hocket::peers
