// Element types, and buffers: contiguous ranges of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <hocket/cpp/error.hpp>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#if __has_include(<stdfloat>)
#include <stdfloat>
#endif

// GCC 12 for 64-bit Arm defines the macro, but has the type in C only.
#if defined(__FLT16_MANT_DIG__) && (defined(__clang__) || defined(__x86_64__) || __GNUC__ >= 13)
#define HOCKET_HAS_FLOAT16 1
#endif
#ifdef __BFLT16_MANT_DIG__
#define HOCKET_HAS_BFLOAT16 1
#endif

namespace hocket {

// The bits of an element, for formats for which C++ or the compiler has no type.
enum class Float16 : std::uint16_t {};
enum class Bfloat16 : std::uint16_t {};
enum class Float8e4m3 : std::uint8_t {};
enum class Float8e5m2 : std::uint8_t {};

namespace detail {

template <typename T, typename... Others>
concept one_of = (std::same_as<T, Others> || ...);

template <hocketDataType_t value_>
struct Datatype {
  static constexpr hocketDataType_t value = value_;
};
/// Has no value if the type is no element type.
template <typename T>
struct BuiltinDatatype {};

// Integers are chosen by size and sign, so that long and long long, char and signed char are
// elements too.
template <typename T>
concept integer = std::integral<T> && !one_of<T, bool, wchar_t, char8_t, char16_t, char32_t>;
template <integer T>
requires(sizeof(T) == 1) struct BuiltinDatatype<T>
    : Datatype<std::is_signed_v<T> ? hocketInt8 : hocketUint8> {
};
template <integer T>
requires(sizeof(T) == 2) struct BuiltinDatatype<T>
    : Datatype<std::is_signed_v<T> ? hocketInt16 : hocketUint16> {
};
template <integer T>
requires(sizeof(T) == 4) struct BuiltinDatatype<T>
    : Datatype<std::is_signed_v<T> ? hocketInt32 : hocketUint32> {
};
template <integer T>
requires(sizeof(T) == 8) struct BuiltinDatatype<T>
    : Datatype<std::is_signed_v<T> ? hocketInt64 : hocketUint64> {
};

template <>
struct BuiltinDatatype<std::byte> : Datatype<hocketUint8> {};
template <>
struct BuiltinDatatype<float> : Datatype<hocketFloat32> {};
template <>
struct BuiltinDatatype<double> : Datatype<hocketFloat64> {};
template <>
struct BuiltinDatatype<Float8e4m3> : Datatype<hocketFloat8e4m3> {};
template <>
struct BuiltinDatatype<Float8e5m2> : Datatype<hocketFloat8e5m2> {};

// With some compilers both names are one type, so there cannot be a specialization for each name.
template <typename T>
concept any_float16 = one_of<T,
#ifdef HOCKET_HAS_FLOAT16
                             _Float16,
#endif
#ifdef __STDCPP_FLOAT16_T__
                             std::float16_t,
#endif
                             Float16>;
template <typename T>
concept any_bfloat16 = one_of<T,
#ifdef HOCKET_HAS_BFLOAT16
                              __bf16,
#endif
#ifdef __STDCPP_BFLOAT16_T__
                              std::bfloat16_t,
#endif
                              Bfloat16>;
template <any_float16 T>
struct BuiltinDatatype<T> : Datatype<hocketFloat16> {};
template <any_bfloat16 T>
struct BuiltinDatatype<T> : Datatype<hocketBfloat16> {};

}  // namespace detail

/// The hocketDataType_t of an element type. For a type of its own, a program adds:
///
///   template <>
///   struct hocket::DatatypeOf<Half> {
///     static constexpr hocketDataType_t value = hocketFloat16;
///   };
template <typename T>
struct DatatypeOf : detail::BuiltinDatatype<T> {};

/// A type that has a datatype of hocket.
template <typename T>
concept Element = std::is_trivially_copyable_v<T> && requires {
  { DatatypeOf<std::remove_cv_t<T>>::value } -> std::convertible_to<hocketDataType_t>;
};
/// A type that the operators of hocket can compute with. std::byte has no arithmetic.
template <typename T>
concept Reducible = Element<T> && !std::same_as<std::remove_cv_t<T>, std::byte>;

namespace detail {

/// Elements that refer to memory of their process: pointers, std::string_view, std::span. Members
/// of structs are not known here.
template <typename T, typename Plain = std::remove_cv_t<std::remove_all_extents_t<T>>>
concept pointing = std::is_pointer_v<Plain> || std::is_member_pointer_v<Plain> ||
    std::is_null_pointer_v<Plain> || std::ranges::enable_borrowed_range<Plain>;

}  // namespace detail

/// A type that collectives without an operator, and messages, can move: an Element, or any other
/// trivially copyable type, which moves as its bytes. All ranks have the same type.
template <typename T>
concept Movable = Element<T> ||(std::is_trivially_copyable_v<T> && !detail::pointing<T>);

template <Element T>
inline constexpr hocketDataType_t datatype_of = DatatypeOf<std::remove_cv_t<T>>::value;

namespace detail {

// A wrong type is a compiler error whose first line is a sentence. So the checks are consteval, and
// code that would cause further errors is left out where a check fails.

template <typename T>
consteval bool check_movable() {
  static_assert(std::is_trivially_copyable_v<T>,
                "hocket: elements are moved as bytes: their type must be trivially copyable");
  static_assert(Element<T> || !pointing<T>,
                "hocket: an element that points into the memory of its process (a pointer, "
                "std::string_view, std::span) means nothing on another rank: move what it points "
                "to");
  return Movable<T>;
}
template <typename T>
consteval bool check_reducible() {
  static_assert(!std::same_as<std::remove_cv_t<T>, std::byte>,
                "hocket: std::byte has no arithmetic, so it cannot be reduced: use std::uint8_t");
  static_assert(Element<T>,
                "hocket: the operators of hocket do not know this type: use an integer or a "
                "floating-point type of at most 64 bits, make a hocket::Operator for it, or "
                "specialize hocket::DatatypeOf");
  return Reducible<T>;
}

template <typename Range>
consteval bool check_range() {
  constexpr bool is_range = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range>;
  static_assert(is_range,
                "hocket: a buffer is a contiguous range, such as std::vector, std::array, "
                "std::span, an array or hocket::Memory");
  if constexpr (is_range) {
    static_assert(std::ranges::borrowed_range<Range>,
                  "hocket: this buffer is a temporary object, which ends before the operation may: "
                  "give it a name");
  }
  return is_range;
}
template <typename Range>
using ElementOf = std::remove_reference_t<std::ranges::range_reference_t<Range>>;
template <typename Range>
consteval bool check_buffer() {
  if constexpr (check_range<Range>()) {
    return check_movable<ElementOf<Range>>();
  } else {
    return false;
  }
}
/// A buffer of a reduction with an operator of hocket.
template <typename Range>
consteval bool check_reducible_buffer() {
  if constexpr (check_range<Range>()) {
    return check_reducible<ElementOf<Range>>();
  } else {
    return false;
  }
}

/// The elements of a buffer that is only read.
template <typename Range>
auto input(Range&& range) {
  if constexpr (check_buffer<Range>()) {
    return std::span<const ElementOf<Range>>(std::ranges::data(range), std::ranges::size(range));
  } else {
    return std::span<const std::uint8_t>();
  }
}
/// The elements of a buffer that is written.
template <typename Range>
auto output(Range&& range) {
  if constexpr (check_buffer<Range>()) {
    static_assert(!std::is_const_v<ElementOf<Range>>,
                  "hocket: the elements of this buffer are const, but a result is to be written to "
                  "them");
    return std::span(std::ranges::data(range), std::ranges::size(range));
  } else {
    return std::span<std::uint8_t>();
  }
}

template <typename In, typename Out>
consteval bool have_one_datatype() {
  if constexpr (Element<In> && Element<Out>) {
    return datatype_of<In> == datatype_of<Out>;
  } else {
    return std::same_as<std::remove_cv_t<In>, std::remove_cv_t<Out>>;
  }
}
template <typename In, typename Out>
constexpr void require_same(std::span<const In>, std::span<Out>) {
  static_assert(have_one_datatype<In, Out>(),
                "hocket: input and output have different element types");
}

// ---- Sizes.

inline std::string elements(std::size_t count) { return std::to_string(count) + " elements"; }

inline void require_equal(const char* operation, std::size_t input, std::size_t output) {
  if (input == output) return;
  throw InvalidArgument(operation, "the input has " + elements(input) + ", the output has " +
                                       elements(output) + ": they must have equally many");
}
/// whole and part: "input" or "output".
inline void require_parts(const char* operation, const char* whole, std::size_t whole_size,
                          int ranks, const char* part, std::size_t part_size) {
  const auto parts = static_cast<std::size_t>(ranks);
  if (whole_size % parts == 0 && whole_size / parts == part_size) return;
  throw InvalidArgument(operation, std::string("the ") + whole + " has " + elements(whole_size) +
                                       ", the " + part + " has " + elements(part_size) + ": the " +
                                       whole + " must have " + std::to_string(ranks) +
                                       " times as many, for " + std::to_string(ranks) + " ranks");
}
/// The size of each rank's part of a buffer.
inline std::size_t part_of(const char* operation, std::size_t size, int ranks) {
  const auto parts = static_cast<std::size_t>(ranks);
  if (size % parts == 0) return size / parts;
  throw InvalidArgument(operation, "the buffer has " + elements(size) +
                                       ", which are no multiple of " + std::to_string(ranks) +
                                       ", the number of ranks");
}

// ---- Bytes, of elements of any type.

template <typename Range>
std::span<const std::byte> bytes(const Range& range) {
  static_assert(std::ranges::contiguous_range<const Range> && std::ranges::sized_range<const Range>,
                "hocket: memory is given as a contiguous range, such as std::span");
  return std::as_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
}
template <typename Range>
std::span<std::byte> writable_bytes(Range&& range) {
  if constexpr (check_range<Range>()) {
    return std::as_writable_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
  }
}

}  // namespace detail
}  // namespace hocket
