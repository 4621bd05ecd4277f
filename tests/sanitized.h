// Repetitions in tests are fewer in slow builds: with a sanitizer, and Debug.
#pragma once

namespace tests {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(HOCKET_ASSERTS)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// The thread sanitizer is the slowest, and looks at no alignment.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif

}  // namespace tests
