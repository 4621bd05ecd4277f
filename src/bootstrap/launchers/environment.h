// The variables of an environment, as launchers set them. A test passes a list of its own.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hocket::internal {

class Environment {
 public:
  /// entries: "NAME=value" strings, then a null pointer; they outlive this object.
  explicit Environment(const char* const* entries = environ) : entries_(entries) {}

  /// The value of a variable; empty: it is not set, or has no characters.
  std::optional<std::string_view> get(std::string_view name) const;
  bool has(std::string_view name) const { return get(name).has_value(); }
  std::string text(std::string_view name) const { return std::string(get(name).value_or("")); }
  /// The value as a whole number; empty: it is none, or not set.
  std::optional<int> number(std::string_view name) const;
  /// "NAME=value", for messages; "NAME is not set" if it is not.
  std::string quoted(std::string_view name) const;

 private:
  const char* const* entries_;
};

}  // namespace hocket::internal
