// What a training object writes to a checkpoint: values by name, as text.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hocket::training {

/// Reads values of a state. Each call throws InvalidArgument, in the name of the operation, if the
/// state has no such value or the value is no number of that kind.
class StateReader {
 public:
  StateReader(const char* operation, const std::map<std::string, std::string>& state)
      : operation_(operation), state_(state) {}
  [[nodiscard]] std::uint64_t integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;

 private:
  [[nodiscard]] const std::string& text(const std::string& name) const;
  [[noreturn]] void refuse(const std::string& name, const char* kind) const;
  const char* operation_;
  const std::map<std::string, std::string>& state_;
};

/// A text from which StateReader::number() gets the same bits.
std::string state_text(double value);

}  // namespace hocket::training
