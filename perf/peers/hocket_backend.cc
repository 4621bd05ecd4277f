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

bool backend_start(const std::string& interface_address, const std::string&, std::string* error) {
  hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
  if (!interface_address.empty()) config.interface_name = interface_address.c_str();
  return explain(hocketCommInitFromEnv(&comm, &config), error);
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

bool backend_all_reduce(const float* in, float* out, std::size_t count, std::string* error) {
  return explain(hocketAllReduce(in, out, count, hocketFloat32, hocketSum, comm, own_thread),
                 error);
}

void backend_stop() {
  (void)hocketCommFinalize(comm);
  (void)hocketCommDestroy(comm);
}

}  // namespace hocket::peers
