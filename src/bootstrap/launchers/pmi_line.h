// The lines of PMI-1, the protocol between a rank and its process manager: blanks separate
// NAME=value pairs, the first of which is the command, and a newline ends the line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hocket::internal {

/// PMI's limits that Hydra and Slurm share.
inline constexpr std::size_t longest_pmi_key = 64;
inline constexpr std::size_t longest_pmi_value = 1024;
inline constexpr std::size_t longest_pmi_line = 4096;

struct PmiLine {
  std::string command;
  std::vector<std::pair<std::string, std::string>> fields;

  std::optional<std::string_view> get(std::string_view name) const;
  std::optional<int> number(std::string_view name) const;
};

/// line: without its newline. Empty: the line does not follow the rules.
std::optional<PmiLine> parse_pmi_line(std::string_view line);
/// The text with its newline.
std::string pmi_text(const PmiLine& line);

}  // namespace hocket::internal
