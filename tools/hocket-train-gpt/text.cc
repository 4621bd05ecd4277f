#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace hocket::gpt {
namespace {

/// The bytes of the UTF-8 character at the begin of the text; 0: there is none.
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than needed; a surrogate; above U+10FFFF.
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return length;
}

std::string read(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  std::string bytes;
  if (file != nullptr) {
    char part[1 << 16];
    for (std::size_t n; (n = std::fread(part, 1, sizeof part, file.get())) > 0;) {
      bytes.append(part, n);
    }
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    throw std::runtime_error(
        fmt::format("cannot read the text {}: {}", path, std::strerror(errno)));
  }
  return bytes;
}

}  // namespace

std::size_t first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_at(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = character_at(text);
    out += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

Text::Text(const std::string& path, std::int64_t sequence)
    : bytes_(read(path)), sequence_(sequence) {
  if (const std::size_t wrong = first_invalid_utf8(bytes_); wrong != std::string::npos) {
    throw std::runtime_error(fmt::format(
        "the text {} is not UTF-8: byte {} (0x{:02x}) is no part of a character. Convert it, for "
        "example with iconv -f latin1 -t utf-8",
        path, wrong, static_cast<unsigned char>(bytes_[wrong])));
  }
  const auto size = static_cast<std::int64_t>(bytes_.size());
  const std::int64_t windows = (size - 1) / sequence;
  if (windows < 3) {
    throw std::runtime_error(fmt::format(
        "the text {} is too short: it has {} bytes, but --sequence {} needs {}. Take a longer text "
        "or a smaller --sequence",
        path, size, sequence, 3 * sequence + 1));
  }
  validation_ = std::max<std::int64_t>(1, windows / 20);
  training_ = windows - validation_;
  hash_ = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : bytes_) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
}

std::string_view Text::training(std::int64_t window) const {
  return std::string_view(bytes_).substr(static_cast<std::size_t>(window * sequence_),
                                         static_cast<std::size_t>(sequence_ + 1));
}

std::string_view Text::validation(std::int64_t window) const {
  return training(training_ + window);
}

}  // namespace hocket::gpt
