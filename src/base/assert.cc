#include "base/assert.h"

#ifdef HOCKET_ASSERTS

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace hocket::internal {

void assertion_failed(const char* condition, const char* meaning, const char* file,
                      int line) noexcept {
  char text[512];
  const int length = std::snprintf(text, sizeof text, "%s:%d: hocket: does not hold: %s (%s)\n",
                                   file, line, meaning, condition);
  const auto bytes = static_cast<std::size_t>(length);
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, text, bytes < sizeof text ? bytes : sizeof text - 1);
  std::abort();
}

}  // namespace hocket::internal

#endif
