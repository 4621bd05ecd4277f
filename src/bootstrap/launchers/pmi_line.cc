#include "bootstrap/launchers/pmi_line.h"

#include <charconv>

namespace hocket::internal {

std::optional<std::string_view> PmiLine::get(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

std::optional<int> PmiLine::number(std::string_view name) const {
  const std::optional<std::string_view> value = get(name);
  if (!value) return {};
  int out = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), out);
  if (error != std::errc() || end != value->data() + value->size()) return {};
  return out;
}

std::optional<PmiLine> parse_pmi_line(std::string_view line) {
  PmiLine out;
  bool first = true;
  while (!line.empty()) {
    const std::size_t blank = line.find(' ');
    const std::string_view word = line.substr(0, blank);
    line.remove_prefix(blank == std::string_view::npos ? line.size() : blank + 1);
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      if (first) return {};
      continue;  // a message of several words, in the answer to a failure
    }
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (first && (name != "cmd" || value.empty())) return {};
    if (first) {
      out.command = value;
    } else {
      out.fields.emplace_back(name, value);
    }
    first = false;
  }
  if (first) return {};
  return out;
}

std::string pmi_text(const PmiLine& line) {
  std::string text = "cmd=" + line.command;
  for (const auto& [name, value] : line.fields)
    text.append(" ").append(name).append("=").append(value);
  return text + "\n";
}

}  // namespace hocket::internal
