// What only repeats itself is repeated less under a sanitizer, where each time costs ten.
#pragma once

namespace tests {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace tests
