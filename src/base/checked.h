// Arithmetic on values that come from a caller or a peer: it fails instead of wrapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/assert.h"

namespace hocket::internal {

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// Converts a value to a narrower type. Asserts that the value fits.
template <typename To, typename From>
constexpr To narrowed(From value) {
  HOCKET_ASSERT(std::in_range<To>(value), "a number fits its type");
  return static_cast<To>(value);
}

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }
/// unit: a power of two; the caller keeps value + unit in range.
constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) & ~(unit - 1);
}

}  // namespace hocket::internal
