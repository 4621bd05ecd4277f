// How hocket-perf handles calls that fail.
#pragma once

#include <string>

#include "hocket/hocket.h"

namespace hocket::perf {

/// Why the run ends. Other ranks receive the errors of the library too.
struct Failure {
  std::string sentence;
  bool from_library = false;
};

/// Returns true if the call succeeded; otherwise sets *failure.
bool ok(hocketResult_t result, const char* call, hocketComm_t comm, Failure* failure);

}  // namespace hocket::perf
