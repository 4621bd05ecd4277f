#include "hosts.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/limits.h"

namespace hocket::internal::launch {
namespace {

bool parse_slots(std::string_view text, int* slots) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *slots);
  return error == std::errc() && rest == text.data() + text.size() && *slots >= 1 &&
         *slots <= max_ranks;
}

std::string no_valid_number() {
  return "has no valid number of ranks (1 to " + std::to_string(max_ranks) + ")";
}

/// Parses HOST or HOST:RANKS. Returns what is wrong with the item; empty: nothing.
std::string parse_host(const std::string& item, HostSlots* host) {
  std::size_t end = std::min(item.find(':'), item.size());
  if (item.starts_with('[')) {
    end = item.find(']');
    if (end == std::string::npos) return "has no closing bracket";
    host->name = item.substr(1, end - 1);
    ++end;
    if (end < item.size() && item[end] != ':') return "is not a host";
  } else {
    host->name = item.substr(0, end);
  }
  if (host->name.empty()) return "has no host name";
  // ssh would parse `-name` as an option. `slots=2` and `a,b` belong elsewhere.
  if (host->name.starts_with('-') || host->name.find_first_of("=,") != std::string::npos)
    return "is not a host name";
  if (end == item.size()) return {};
  return parse_slots(item.substr(end + 1), &host->slots) ? "" : no_valid_number();
}

/// The words after the host: slots=N, max_slots=M.
std::string parse_word(const std::string& word, int* slots, int* max_slots) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const bool is_limit = name == "max_slots" || name == "max-slots";
  if (equals == std::string::npos || (name != "slots" && !is_limit)) return "is not known";
  const std::string_view number = std::string_view(word).substr(equals + 1);
  return parse_slots(number, is_limit ? max_slots : slots) ? "" : no_valid_number();
}

/// Parses a line of a host file without its comment. An empty line leaves host->name empty.
std::string parse_line(const std::string& line, HostSlots* host) {
  std::istringstream words(line);
  std::string item;
  if (!(words >> item)) return {};
  if (const std::string why = parse_host(item, host); !why.empty()) return "'" + item + "' " + why;
  int slots = 0, max_slots = max_ranks;
  for (std::string word; words >> word;) {
    const std::string why = parse_word(word, &slots, &max_slots);
    if (!why.empty()) return "'" + word + "' " + why;
  }
  if (slots != 0 && host->slots != 0)
    return "'" + item + "' has a number of ranks, and slots= another";
  if (slots != 0) host->slots = slots;
  if (host->slots > max_slots) return "the line has more slots than max_slots";
  return {};
}

void add_slots(HostSlots host, std::vector<HostSlots>* hosts) {
  const auto same = [&](const HostSlots& other) { return other.name == host.name; };
  const auto known = std::ranges::find_if(*hosts, same);
  if (known == hosts->end()) {
    hosts->push_back(std::move(host));
  } else {
    known->slots = std::min(std::max(known->slots, 1) + std::max(host.slots, 1), max_ranks);
  }
}

Status cannot_read(const std::string& path) {
  const std::string reason = std::generic_category().message(errno);
  return invalid_argument("--hostfile: cannot read " + path + ": " + reason +
                          "; name a file that has a host on each line");
}

}  // namespace

Status parse_hosts(const std::string& text, std::vector<HostSlots>* hosts) {
  const auto bad_host = [](const std::string& item, const std::string& why) {
    return invalid_argument("--hosts: '" + item + "' " + why +
                            "; write HOST or HOST:RANKS, separated by commas, an IPv6 address in "
                            "brackets");
  };
  hosts->clear();
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    HostSlots host;
    if (const std::string why = parse_host(item, &host); !why.empty()) return bad_host(item, why);
    add_slots(std::move(host), hosts);
    begin = end + 1;
  }
  return {};
}

Status parse_host_file(std::istream& text, const std::string& name, std::vector<HostSlots>* hosts) {
  hosts->clear();
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    HostSlots host;
    const std::string why = parse_line(line.substr(0, line.find('#')), &host);
    if (!why.empty()) {
      return invalid_argument(name + ":" + std::to_string(number) + ": " + why +
                              "; write HOST, HOST:RANKS or HOST slots=RANKS [max_slots=LIMIT], "
                              "one host on each line, an IPv6 address in brackets");
    }
    if (!host.name.empty()) add_slots(std::move(host), hosts);
  }
  if (hosts->empty()) return invalid_argument(name + " names no host; write one on each line");
  return {};
}

Status read_host_file(const std::string& path, std::vector<HostSlots>* hosts) {
  std::ifstream file(path);
  if (!file) return cannot_read(path);
  const Status status = parse_host_file(file, path, hosts);
  return file.bad() ? cannot_read(path) : status;  // bad: a directory
}

}  // namespace hocket::internal::launch
