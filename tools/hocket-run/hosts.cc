#include "hosts.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "base/limits.h"
#include "bootstrap/launchers/host_list.h"

namespace hocket::internal::launch {
namespace {

// Each host has at least one rank.
constexpr std::size_t most_hosts = max_ranks;

/// HOST or HOST:RANKS; with a list of Slurm in place of HOST, several hosts.
struct Item {
  std::vector<std::string> names;
  int slots = 0;  // of each host; 0: not given
};

/// The hosts so far, each once.
class HostTable {
 public:
  explicit HostTable(std::vector<HostSlots>* hosts) : hosts_(hosts) { hosts_->clear(); }

  /// Returns what is wrong; empty: nothing.
  std::string add(const Item& item) {
    for (const std::string& name : item.names) {
      const auto [place, is_new] = places_.try_emplace(name, hosts_->size());
      if (!is_new) {
        HostSlots& known = (*hosts_)[place->second];
        known.slots = std::min(std::max(known.slots, 1) + std::max(item.slots, 1), max_ranks);
      } else if (hosts_->size() == most_hosts) {
        return "'" + name + "' is one host too many: a job has at most " +
               std::to_string(most_hosts);
      } else {
        hosts_->push_back({name, item.slots});
      }
    }
    return {};
  }

 private:
  std::vector<HostSlots>* hosts_;
  std::unordered_map<std::string, std::size_t> places_;  // by name
};

bool parse_slots(std::string_view text, int* slots) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *slots);
  return error == std::errc() && rest == text.data() + text.size() && *slots >= 1 &&
         *slots <= max_ranks;
}

std::string no_valid_number() {
  return "has no valid number of ranks (1 to " + std::to_string(max_ranks) + ")";
}

/// Of `slots=2` and of a list; blanks and control characters.
bool belongs_to_no_name(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte <= ' ' || byte == 0x7f || std::string_view("=,[]").find(c) != std::string_view::npos;
}

/// Why the text before the number of ranks is no name of a host; empty: it is one, or a list.
std::string name_error(const std::string& name) {
  if (name.empty()) return "has no host name";
  if (name.starts_with('+')) {
    return "refers to a host of an allocation as Open MPI does, and hocket-run needs its name";
  }
  if (name.starts_with('^')) {
    return "excludes a host, and hocket-run uses no host that is not named, so leave it out";
  }
  // ssh would parse `-name` as an option.
  return name.starts_with('-') ? "is not a host name" : "";
}

/// Parses the names of an item: a name, or a list as Slurm writes it.
std::string parse_names(const std::string& text, std::vector<std::string>* names) {
  if (std::string why = name_error(text); !why.empty()) return why;
  std::string_view rest = text;
  if (next_list_item(&rest) != text) return "is not a host name";  // `a,b`
  if (text.find_first_of("[]") == std::string::npos) {
    names->assign(1, text);
  } else if (!expand_host_list(text, most_hosts, names).ok()) {
    return "is no list of hosts as Slurm writes it (h[1-3,05]), or has more than " +
           std::to_string(most_hosts);
  }
  // The names of a list differ in digits alone.
  return std::ranges::any_of(names->front(), belongs_to_no_name) ? "is not a host name" : "";
}

/// Parses an IPv6 address in brackets at the front of the item, and sets its end.
std::string parse_bracketed(const std::string& item, std::vector<std::string>* names,
                            std::size_t* end) {
  const std::size_t close = item.find(']');
  if (close == std::string::npos) return "has no closing bracket";
  *end = close + 1;
  if (*end < item.size() && item[*end] != ':') return "is not a host";
  names->assign(1, item.substr(1, close - 1));
  if (std::ranges::any_of(names->front(), belongs_to_no_name)) return "is not a host name";
  return name_error(names->front());
}

/// Parses HOST or HOST:RANKS. Returns what is wrong with the item; empty: nothing.
std::string parse_item(const std::string& text, Item* item) {
  std::size_t end = std::min(text.find(':'), text.size());
  // In an address the first colon comes before the closing bracket; a list has no colon.
  const bool is_address = text.starts_with('[') && end < text.size() && end < text.find(']');
  std::string why = is_address ? parse_bracketed(text, &item->names, &end)
                               : parse_names(text.substr(0, end), &item->names);
  if (!why.empty() || end == text.size()) return why;
  return parse_slots(text.substr(end + 1), &item->slots) ? "" : no_valid_number();
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

/// The line without blanks around `=`, as Open MPI reads it: `slots = 2` is `slots=2`.
std::string joined_at_equals(const std::string& line) {
  constexpr const char* blanks = " \t";
  std::string joined;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '=') {
      joined += line[i];
      continue;
    }
    joined.resize(joined.find_last_not_of(blanks) + 1);  // npos + 1 is 0
    joined += '=';
    i = std::min(line.find_first_not_of(blanks, i + 1), line.size()) - 1;
  }
  return joined;
}

/// Parses a line of a host file without its comment. An empty line has no names.
std::string parse_line(const std::string& line, Item* item) {
  std::istringstream words(joined_at_equals(line));
  std::string first;
  if (!(words >> first)) return {};
  if (const std::string why = parse_item(first, item); !why.empty()) {
    return "'" + first + "' " + why;
  }
  int slots = 0, max_slots = max_ranks;
  for (std::string word; words >> word;) {
    const std::string why = parse_word(word, &slots, &max_slots);
    if (!why.empty()) return "'" + word + "' " + why;
  }
  if (slots != 0 && item->slots != 0)
    return "'" + first + "' has a number of ranks, and slots= another";
  if (slots != 0) item->slots = slots;
  if (item->slots > max_slots) return "the line has more slots than max_slots";
  return {};
}

Status cannot_read(const std::string& path) {
  const std::string reason = std::generic_category().message(errno);
  return invalid_argument("--hostfile: cannot read " + path + ": " + reason +
                          "; name a file that has a host on each line");
}

}  // namespace

Status parse_hosts(const std::string& text, std::vector<HostSlots>* hosts) {
  HostTable table(hosts);
  std::string_view rest = text;
  do {
    const std::string word(next_list_item(&rest));
    Item item;
    std::string why = parse_item(word, &item);
    why = why.empty() ? table.add(item) : "'" + word + "' " + why;
    if (!why.empty()) {
      return invalid_argument("--hosts: " + why +
                              "; write HOST or HOST:RANKS, separated by commas, an IPv6 address in "
                              "brackets");
    }
  } while (!rest.empty());
  return {};
}

Status parse_host_file(std::istream& text, const std::string& name, std::vector<HostSlots>* hosts) {
  HostTable table(hosts);
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    Item item;
    std::string why = parse_line(line.substr(0, line.find('#')), &item);
    if (why.empty()) why = table.add(item);
    if (!why.empty()) {
      return invalid_argument(name + ":" + std::to_string(number) + ": " + why +
                              "; write HOST, HOST:RANKS or HOST slots=RANKS [max_slots=LIMIT], "
                              "one host on each line, an IPv6 address in brackets");
    }
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
