#include "call.h"

#include <fmt/format.h>

namespace hocket::perf {

bool ok(hocketResult_t result, const char* call, hocketComm_t comm, Failure* failure) {
  if (result == hocketSuccess) return true;
  int rank = 0;
  (void)hocketCommUserRank(comm, &rank);
  failure->sentence = fmt::format("rank {}: {}: {}: {}", rank, call, hocketGetErrorString(result),
                                  hocketGetLastError(comm));
  failure->from_library = true;
  return false;
}

}  // namespace hocket::perf
