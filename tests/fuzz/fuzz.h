// What the fuzz targets of this folder share. A target is a function of an input; libFuzzer calls
// it with inputs that it makes (./dev fuzz), and the program test_fuzz with those of corpus/ and
// with mutations of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hocket::fuzz {

/// Takes values off the front of an input. Behind its end there are zeros.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  template <typename Number>
  Number number() {
    Number value{};
    const std::size_t size = std::min(sizeof value, rest_.size());
    if (size > 0) std::memcpy(&value, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return value;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  std::size_t below(std::size_t limit) { return number<std::uint16_t>() % limit; }
  /// A number of the list.
  template <typename Number, std::size_t N>
  Number pick(const Number (&list)[N]) {
    return list[byte() % N];
  }
  template <std::size_t N>
  std::array<std::uint8_t, N> bytes() {
    return number<std::array<std::uint8_t, N>>();
  }
  std::size_t left() const { return rest_.size(); }
  std::span<const std::uint8_t> rest() const { return rest_; }
  std::vector<std::uint8_t> vector() const { return {rest_.begin(), rest_.end()}; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }

 private:
  std::span<const std::uint8_t> rest_;
};

struct Target {
  const char* name;
  void (*run)(Input input);
};
inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

/// What a target throws. It is no std::exception, because the library catches these.
struct Broken {
  std::string what;
};

[[noreturn]] inline void broken(const char* file, int line, const char* condition) {
  const std::string what =
      std::string(file) + ":" + std::to_string(line) + ": does not hold: " + condition;
#ifdef HOCKET_LIBFUZZER
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
#else
  throw Broken{what};
#endif
}

}  // namespace hocket::fuzz

/// A promise of the code under test.
#define FUZZ_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::hocket::fuzz::broken(__FILE__, __LINE__, #condition))

/// Begins the definition of the target: FUZZ_TARGET(name, input) { ... }. One for each source.
#ifdef HOCKET_LIBFUZZER
#define FUZZ_TARGET(name, input)                                                      \
  static void fuzz_##name(::hocket::fuzz::Input input);                               \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    fuzz_##name(::hocket::fuzz::Input({data, size}));                                 \
    return 0;                                                                         \
  }                                                                                   \
  static void fuzz_##name(::hocket::fuzz::Input input)
#else
#define FUZZ_TARGET(name, input)                                         \
  static void fuzz_##name(::hocket::fuzz::Input input);                  \
  [[maybe_unused]] static const bool fuzz_##name##_is_known =            \
      (::hocket::fuzz::targets().push_back({#name, fuzz_##name}), true); \
  static void fuzz_##name(::hocket::fuzz::Input input)
#endif
