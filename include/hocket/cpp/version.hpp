// The version of the library.
#pragma once

#include <hocket/cpp/error.hpp>

namespace hocket {

/// The library's HOCKET_VERSION_CODE (hocketGetVersion). That of the header is the constant itself,
/// and differs where the program was compiled with another release.
[[nodiscard]] inline int version() {
  int code = 0;
  check(hocketGetVersion(&code), "hocketGetVersion");
  return code;
}

}  // namespace hocket
