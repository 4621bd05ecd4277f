#include "bootstrap/launchers/host_list.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace hocket::internal {
namespace {

Status bad_list(std::string_view list) {
  return invalid_argument(std::string("\"") + std::string(list) +
                          "\" is no list of hosts of Slurm");
}

bool parse_count(std::string_view text, int* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0;
}

/// "1-2" or "05": adds the numbers, with as many digits as the first number has.
bool add_range(std::string_view range, std::size_t most, std::vector<std::string>* numbers) {
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  int from = 0;
  int to = 0;
  if (!parse_count(first, &from) || !parse_count(last, &to) || to < from) return false;
  for (int number = from;; ++number) {
    if (numbers->size() >= most) return false;
    std::string digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    numbers->push_back(std::move(digits));
    if (number == to) return true;
  }
}

/// One item of a host list: each bracket multiplies the names so far.
bool expand_item(std::string_view item, std::size_t most, std::vector<std::string>* names) {
  names->assign(1, std::string());
  while (!item.empty()) {
    const std::size_t open = item.find('[');
    const std::string_view plain = item.substr(0, open);
    if (plain.find(']') != std::string_view::npos) return false;
    for (std::string& name : *names) name += plain;
    if (open == std::string_view::npos) return true;
    const std::size_t close = item.find(']', open);
    if (close == std::string_view::npos) return false;
    std::string_view ranges = item.substr(open + 1, close - open - 1);
    std::vector<std::string> numbers;
    do {
      if (!add_range(next_list_item(&ranges), most, &numbers)) return false;
    } while (!ranges.empty());
    if (names->size() * numbers.size() > most) return false;
    std::vector<std::string> longer;
    for (const std::string& name : *names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    *names = std::move(longer);
    item.remove_prefix(close + 1);
  }
  return true;
}

}  // namespace

std::string_view next_list_item(std::string_view* rest) {
  int depth = 0;
  std::size_t end = 0;
  for (; end < rest->size(); ++end) {
    const char c = (*rest)[end];
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) break;
  }
  const bool ends_with_comma = end + 1 == rest->size();
  const std::string_view item = ends_with_comma ? std::string_view() : rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return item;
}

Status expand_host_list(std::string_view list, std::size_t most, std::vector<std::string>* hosts) {
  hosts->clear();
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::string_view item = next_list_item(&rest);
    std::vector<std::string> names;
    if (item.empty() || !expand_item(item, most, &names) || hosts->size() + names.size() > most) {
      return bad_list(list);
    }
    hosts->insert(hosts->end(), names.begin(), names.end());
  }
  return hosts->empty() ? bad_list(list) : Status();
}

}  // namespace hocket::internal
