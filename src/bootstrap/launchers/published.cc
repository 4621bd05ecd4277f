#include "bootstrap/launchers/published.h"

#include <fmt/format.h>

namespace hocket::internal {
namespace {

constexpr char key_inside = 'k';
constexpr char key_in_file = 'f';

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string published_text(const UniqueId& id, bool with_key) {
  UniqueId shown = id;
  if (!with_key) shown.key = {};
  std::string text(1, with_key ? key_inside : key_in_file);
  for (const std::uint8_t byte : encode(shown)) text += fmt::format("{:02x}", byte);
  return text;
}

Status parse_published(std::string_view text, UniqueId* id, bool* with_key) {
  UniqueIdBytes bytes{};
  bool sound = text.size() == 1 + 2 * bytes.size() &&
               (text.front() == key_inside || text.front() == key_in_file);
  for (std::size_t i = 0; sound && i < bytes.size(); ++i) {
    const int high = digit(text[1 + 2 * i]);
    const int low = digit(text[2 + 2 * i]);
    sound = high >= 0 && low >= 0;
    bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  if (!sound) {
    return {Code::remote_error,
            fmt::format("rank 0 published {} characters that are not what this release of hocket "
                        "publishes: use the same library for all ranks",
                        text.size())};
  }
  UniqueId read;
  HOCKET_RETURN_IF_ERROR(decode(bytes, &read));
  *with_key = text.front() == key_inside;
  if (!*with_key) read.key = {};  // the ranks read it from the file
  *id = read;
  return {};
}

}  // namespace hocket::internal
