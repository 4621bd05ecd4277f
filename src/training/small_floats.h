// bfloat16 and float16 in plain code: conversion to float32, and from float32 with rounding to the
// nearest value, ties to even. The vector code (small_floats-inl.h) takes the same steps.
#pragma once

#include <bit>
#include <cstdint>

namespace hocket::training::small {

struct Bfloat16 {
  static float widen(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static std::uint16_t narrow(float value) {
    if (value != value) return 0x7fc0;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + ((bits >> 16) & 1) + 0x7fff) >> 16);
  }
};

struct Float16 {
  static constexpr std::uint32_t infinity = 0x7c00;
  static constexpr std::uint32_t rebias = (127 - 15) << 23;       // of exponents, in float32
  static constexpr std::uint32_t smallest_normal = 113u << 23;    // 2^-14 as float32
  static constexpr std::uint32_t too_large = (127u + 16u) << 23;  // 2^16 as float32
  static constexpr std::uint32_t subnormal_rounder = 126u << 23;  // 0.5: its last bit is 2^-24
  static constexpr float unit = 0x1p-24f;                         // the smallest subnormal

  static float widen(std::uint16_t half) {
    const std::uint32_t code = half & 0x7fffu;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    std::uint32_t wide = (code << 13) + rebias;
    if (code < 0x400u) wide = std::bit_cast<std::uint32_t>(static_cast<float>(code) * unit);
    if (code >= infinity) wide += rebias;
    return std::bit_cast<float>(wide | sign);
  }
  static std::uint16_t narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    if (magnitude > 0x7f800000u) return 0x7e00;
    if (magnitude >= too_large) return static_cast<std::uint16_t>(infinity | sign);
    if (magnitude < smallest_normal) {
      const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(subnormal_rounder);
      return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(sum) - subnormal_rounder) |
                                        sign);
    }
    const std::uint32_t rounded = magnitude - rebias + 0xfff + ((magnitude >> 13) & 1);
    return static_cast<std::uint16_t>((rounded >> 13) | sign);  // may round up to infinity
  }
};

}  // namespace hocket::training::small
