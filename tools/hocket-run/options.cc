#include "options.h"

#include <cstdlib>
#include <utility>

#include "base/limits.h"

namespace hocket::internal::launch {
Status parse_environment(const std::vector<std::string>& given, std::vector<std::string>* out) {
  for (const std::string& item : given) {
    const std::size_t equals = item.find('=');
    if (equals == 0 || item.empty()) {
      return invalid_argument("--env: '" + item + "' has no name; write NAME or NAME=VALUE");
    }
    if (set_by_launcher(item.substr(0, equals))) {
      return invalid_argument("--env: hocket-run itself sets " + item.substr(0, equals) +
                              ", another value for each rank; leave it out");
    }
    if (equals != std::string::npos) {
      out->push_back(item);
      continue;
    }
    const char* value = std::getenv(item.c_str());
    if (value == nullptr) {
      return invalid_argument("--env: " + item + " is not set here; set it, or write " + item +
                              "=VALUE");
    }
    out->push_back(item + "=" + value);
  }
  return {};
}

Status count_ranks(Options* options) {
  if (options->programs.size() == 1) return {};
  if (options->ranks == 0) {
    return invalid_argument("'" + options->programs[0].arguments[0] +
                            "' has no number of ranks; write -n RANKS before each of the programs "
                            "(after `--`, ':' is an argument of the program)");
  }
  options->programs[0].ranks = options->ranks;
  long sum = 0;
  for (const Program& program : options->programs) sum += program.ranks;
  if (sum > max_ranks) {
    return invalid_argument("the programs have " + std::to_string(sum) +
                            " ranks together, but a job has at most " + std::to_string(max_ranks));
  }
  options->ranks = static_cast<int>(sum);
  return {};
}

Status place_ranks(Options* options) {
  HOCKET_RETURN_IF_ERROR(
      place_ranks(options->map_by, options->hosts_source, &options->ranks, &options->hosts));
  if (options->programs.size() == 1) options->programs[0].ranks = options->ranks;
  return {};
}

Status split_command(const std::string& text, std::vector<std::string>* words) {
  words->clear();
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c;
      in_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\t')) {
      if (in_word) words->push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return invalid_argument("the ssh command `" + text + "` has an open quote");
  if (in_word) words->push_back(word);
  if (words->empty()) return invalid_argument("the ssh command is empty");
  return {};
}

}  // namespace hocket::internal::launch
