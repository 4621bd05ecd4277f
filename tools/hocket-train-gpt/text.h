// The text: bytes of a file, cut into windows for training and for validation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hocket::gpt {

/// The position of the first byte that is not part of UTF-8; npos: there is none.
std::size_t first_invalid_utf8(std::string_view text);

/// The text with each invalid byte, and a character cut off at its end, replaced by U+FFFD.
std::string printable(std::string_view text);

class Text {
 public:
  /// Throws std::runtime_error if the file cannot be read, is not UTF-8, or is too short for
  /// windows of this many bytes: two for training and one for validation.
  Text(const std::string& path, std::int64_t sequence);

  /// Window i: `sequence` inputs, and the byte after each of them as its target. Windows share only
  /// the byte that is the last target of one and the first input of the next.
  [[nodiscard]] std::int64_t training_windows() const { return training_; }
  [[nodiscard]] std::int64_t validation_windows() const { return validation_; }
  /// The sequence + 1 bytes of a window. Those for validation are the last 5 % of the text.
  [[nodiscard]] std::string_view training(std::int64_t window) const;
  [[nodiscard]] std::string_view validation(std::int64_t window) const;
  [[nodiscard]] std::size_t bytes() const { return bytes_.size(); }
  /// Equal for equal texts.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  std::string bytes_;
  std::int64_t sequence_;
  std::int64_t training_ = 0, validation_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace hocket::gpt
