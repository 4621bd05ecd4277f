// What hocket-perf does about calls that fail.
#pragma once

#include <string>

#include "hocket/hocket.h"

namespace hocket::perf {

/// Why the run ends. What the library says, other ranks hear too.
struct Failure {
  std::string sentence;
  bool from_library = false;
};

/// False, and *failure filled, where a call did not succeed.
bool ok(hocketResult_t result, const char* call, hocketComm_t comm, Failure* failure);

}  // namespace hocket::perf
