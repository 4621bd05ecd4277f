// Numbers and texts as bytes: little-endian, texts after their length.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "training/storage_failure.h"

namespace hocket::training::storage {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "hocket: files have little-endian numbers, which are copied from memory");

class ByteWriter {
 public:
  template <typename Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
  }
  void zeros(std::size_t count) { bytes_.append(count, '\0'); }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what a ByteWriter wrote. An end before a value is a Failure that names the path.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {}

  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  void zeros(std::size_t count) {
    if (take(count).find_first_not_of('\0') != std::string_view::npos) {
      wrong("a byte that must be 0 is not");
    }
  }
  /// A number of things that follow, each of which has at least so many bytes.
  std::size_t count(std::uint64_t things, std::size_t least_bytes) {
    if (things > rest_.size() / least_bytes) wrong("it is shorter than the things that it counts");
    return static_cast<std::size_t>(things);
  }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }
  [[noreturn]] void wrong(const std::string& how) const { damaged(path_, how); }

 private:
  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) wrong("it ends too early");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::string_view rest_;
  const std::string& path_;
};

}  // namespace hocket::training::storage
