// LD_PRELOADed before libhocket: the result of all-reduce SPOIL_CALL on rank SPOIL_RANK (-1: all)
// gets bit SPOIL_BIT flipped afterwards. So a test sees whether hocket-perf does.
#include <dlfcn.h>

#include <cstdlib>

#include "hocket/hocket.h"

extern "C" hocketResult_t hocketAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, hocketRedOp_t op,
                                          hocketComm_t comm, hocketStream_t stream) {
  static const auto real =
      reinterpret_cast<decltype(&hocketAllReduce)>(dlsym(RTLD_NEXT, "hocketAllReduce"));
  static const int wanted_call = std::atoi(std::getenv("SPOIL_CALL"));
  static const int wanted_rank = std::atoi(std::getenv("SPOIL_RANK"));
  static const int bit = std::atoi(std::getenv("SPOIL_BIT"));
  static int call = 0;
  const hocketResult_t result = real(sendbuff, recvbuff, count, datatype, op, comm, stream);
  int rank = -1;
  if (hocketCommUserRank(comm, &rank) != hocketSuccess) return result;
  if (hocketStreamSynchronize(stream) != hocketSuccess) return result;
  if (call++ == wanted_call && (wanted_rank == -1 || wanted_rank == rank)) {
    static_cast<unsigned char*>(recvbuff)[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  return result;
}
