#include "training/state.h"

#include <fmt/format.h>

#include <charconv>
#include <hocket/hocket.hpp>

namespace hocket::training {
namespace {

template <typename Value>
bool parse(const std::string& text, Value& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return !text.empty() && result.ec == std::errc() && result.ptr == end;
}

}  // namespace

const std::string& StateReader::text(const std::string& name) const {
  const auto found = state_.find(name);
  if (found == state_.end()) {
    throw InvalidArgument(operation_, fmt::format("the state has no '{}': it was not made by "
                                                  "state() of such an object",
                                                  name));
  }
  return found->second;
}

void StateReader::refuse(const std::string& name, const char* kind) const {
  throw InvalidArgument(
      operation_, fmt::format("the state has '{}' = '{}', which is no {}", name, text(name), kind));
}

std::uint64_t StateReader::integer(const std::string& name) const {
  std::uint64_t value = 0;
  if (!parse(text(name), value)) refuse(name, "whole number");
  return value;
}

double StateReader::number(const std::string& name) const {
  double value = 0;
  if (!parse(text(name), value)) refuse(name, "number");
  return value;
}

std::string state_text(double value) {
  return fmt::format("{}", value);  // the shortest text that gives these bits
}

}  // namespace hocket::training
