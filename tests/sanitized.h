// Repetitions in tests are fewer in slow builds: with a sanitizer, and without optimization.
#pragma once

namespace tests {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace tests
