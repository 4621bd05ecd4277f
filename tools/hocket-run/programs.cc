#include "programs.h"

#include <algorithm>
#include <charconv>

#include "base/limits.h"
#include "foreign_options.h"

namespace hocket::internal::launch {
namespace {

using Words = std::vector<std::string>;

Status unknown_option(const std::string& word) {
  return invalid_argument("unknown option " + word +
                          "; `hocket-run --help` lists them (options of the program come after "
                          "it)");
}

/// Parts between the words `:`; one more than there are such words.
std::vector<Words> split_at_colons(const Words& words) {
  std::vector<Words> parts(1);
  for (const std::string& word : words) {
    if (word == ":") {
      parts.emplace_back();
    } else {
      parts.back().push_back(word);
    }
  }
  return parts;
}

Status parse_ranks(const std::string& text, std::int32_t* ranks) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *ranks);
  if (error == std::errc() && rest == text.data() + text.size() && *ranks >= 1 &&
      *ranks <= max_ranks) {
    return {};
  }
  return invalid_argument("-n: '" + text + "' after ':' is no number of ranks (1 to " +
                          std::to_string(max_ranks) + ")");
}

/// Parses `-n RANKS PROGRAM ARGUMENTS...`, the words between two `:`.
Status parse_later_program(const Words& words, Program* program) {
  std::size_t at = 0;
  for (; at < words.size() && words[at].starts_with('-'); ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    const std::string option = own_spelling(words[at]);
    const bool is_n =
        option.starts_with("-n") && (option.size() == 2 || (option[2] >= '0' && option[2] <= '9'));
    if (!is_n) {
      return invalid_argument("option " + words[at] +
                              " after ':': only -n is allowed there; write the options of all "
                              "ranks before the first program");
    }
    std::string value = option.substr(2);
    if (value.empty() && at + 1 < words.size()) value = words[++at];
    HOCKET_RETURN_IF_ERROR(parse_ranks(value, &program->ranks));
  }
  program->arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  if (program->arguments.empty()) {
    return invalid_argument(
        "no program after ':'; write -n RANKS PROGRAM there (after `--`, ':' "
        "is an argument of the program)");
  }
  if (program->ranks == 0) {
    return invalid_argument(
        "'" + program->arguments[0] + "' after ':' has no number of ranks; write `: -n RANKS " +
        program->arguments[0] + "` (after `--`, ':' is an argument of the program)");
  }
  return {};
}

}  // namespace

Status take_programs(const Words& words, std::vector<Program>* programs) {
  if (words.empty()) return invalid_argument("no program to run; `hocket-run --help` shows how");
  std::vector<Words> parts;
  if (words.front() == "--") {
    parts.emplace_back(words.begin() + 1, words.end());
  } else if (words.front().starts_with('-')) {
    return unknown_option(words.front());
  } else {
    parts = split_at_colons(words);
  }
  if (parts[0].empty()) {
    return invalid_argument(words.size() > 1
                                ? "no program before ':'; write PROGRAM : -n RANKS PROGRAM"
                                : "no program to run; `hocket-run --help` shows how");
  }
  programs->assign(1, Program{0, parts[0]});
  for (std::size_t i = 1; i < parts.size(); ++i) {
    HOCKET_RETURN_IF_ERROR(parse_later_program(parts[i], &programs->emplace_back()));
  }
  return {};
}

std::vector<Program> programs_of_ranks(const std::vector<Program>& programs,
                                       const std::vector<int>& ranks) {
  std::vector<Program> found;
  const Words* last = nullptr;
  for (const int rank : ranks) {
    const Words& arguments = arguments_of(programs, rank);
    if (&arguments != last) found.push_back({0, arguments});
    last = &arguments;
    ++found.back().ranks;
  }
  return found;
}

const Words& arguments_of(const std::vector<Program>& programs, int rank) {
  std::size_t index = 0;
  while (rank >= programs[index].ranks) rank -= programs[index++].ranks;
  return programs[index].arguments;
}

}  // namespace hocket::internal::launch
