// What only repeats itself is repeated less where each time costs ten: under a sanitizer, and
// without optimization.
#pragma once

namespace tests {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace tests
