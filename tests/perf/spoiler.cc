// Loaded by LD_PRELOAD before libhocket, to test how hocket-perf handles wrong results. It flips
// bit SPOIL_BIT of the result of all-reduce SPOIL_CALL on rank SPOIL_RANK (-1: all). Rank LATE_RANK
// leaves every barrier LATE_MS milliseconds late.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "hocket/hocket.h"

namespace {

int setting(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -2 : std::atoi(text);
}

int rank_of(hocketComm_t comm) {
  int rank = -3;
  (void)hocketCommUserRank(comm, &rank);
  return rank;
}

}  // namespace

extern "C" hocketResult_t hocketAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, hocketRedOp_t op,
                                          hocketComm_t comm, hocketStream_t stream) {
  static const auto real =
      reinterpret_cast<decltype(&hocketAllReduce)>(dlsym(RTLD_NEXT, "hocketAllReduce"));
  static const int wanted_call = setting("SPOIL_CALL");
  static const int wanted_rank = setting("SPOIL_RANK");
  static const int bit = setting("SPOIL_BIT");
  static int call = 0;
  const hocketResult_t result = real(sendbuff, recvbuff, count, datatype, op, comm, stream);
  if (call++ != wanted_call || (wanted_rank != -1 && wanted_rank != rank_of(comm))) return result;
  if (hocketStreamSynchronize(stream) != hocketSuccess) return result;
  static_cast<unsigned char*>(recvbuff)[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  return result;
}

extern "C" hocketResult_t hocketBarrier(hocketComm_t comm, hocketStream_t stream) {
  static const auto real =
      reinterpret_cast<decltype(&hocketBarrier)>(dlsym(RTLD_NEXT, "hocketBarrier"));
  static const int late_rank = setting("LATE_RANK");
  static const int late_ms = setting("LATE_MS");
  const hocketResult_t result = real(comm, stream);
  if (late_rank == rank_of(comm)) ::usleep(static_cast<unsigned>(late_ms) * 1000);
  return result;
}
