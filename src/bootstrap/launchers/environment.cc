#include "bootstrap/launchers/environment.h"

#include <charconv>

namespace hocket::internal {

std::optional<std::string_view> Environment::get(std::string_view name) const {
  if (entries_ == nullptr) return {};
  for (const char* const* entry = entries_; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(name) || text.size() <= name.size() + 1 || text[name.size()] != '=') {
      continue;
    }
    return text.substr(name.size() + 1);
  }
  return {};
}

std::optional<int> Environment::number(std::string_view name) const {
  const std::optional<std::string_view> value = get(name);
  if (!value) return {};
  int out = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), out);
  if (error != std::errc() || end != value->data() + value->size()) return {};
  return out;
}

std::string Environment::quoted(std::string_view name) const {
  const std::optional<std::string_view> value = get(name);
  return value ? std::string(name) + "=" + std::string(*value) : std::string(name) + " is not set";
}

}  // namespace hocket::internal
