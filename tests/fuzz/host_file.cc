// The hosts of hocket-run: --hosts, or a host file. The first byte selects which.
#include <sstream>

#include "base/limits.h"
#include "fuzz/fuzz.h"
#include "hosts.h"

namespace hocket::internal {
namespace {

using Hosts = std::vector<launch::HostSlots>;

// A list of 65,535 hosts repeats the rest of its name as often.
constexpr std::size_t longest = 1000;

Status parse(bool is_file, const std::string& text, Hosts* hosts) {
  if (!is_file) return launch::parse_hosts(text, hosts);
  std::istringstream file(text);
  return launch::parse_host_file(file, "FILE", hosts);
}

/// The hosts as --hosts, or lines of a file, name them without lists.
std::string written(const Hosts& hosts, char separator) {
  std::string text;
  for (const launch::HostSlots& host : hosts) {
    if (!text.empty()) text += separator;
    const bool is_address = host.name.find(':') != std::string::npos;
    text += is_address ? "[" + host.name + "]" : host.name;
    if (host.slots != 0) text += ":" + std::to_string(host.slots);
  }
  return text;
}

/// What ssh gets as its argument.
void check_name(const std::string& name) {
  FUZZ_CHECK(!name.empty() && std::string_view("-+^").find(name[0]) == std::string_view::npos);
  FUZZ_CHECK(name.find_first_of("[]=,") == std::string::npos);
  FUZZ_CHECK(std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c != 0x7f; }));
}

FUZZ_TARGET(host_file, input) {
  const bool is_file = input.byte() % 2 == 1;
  const std::string text(input.text().substr(0, longest));
  Hosts hosts;
  const Status status = parse(is_file, text, &hosts);
  if (!status.ok()) {
    FUZZ_CHECK(status.code() == Code::invalid_argument);
    FUZZ_CHECK(status.message().starts_with(is_file ? "FILE" : "--hosts: '"));
    FUZZ_CHECK(status.message().find("; write ") != std::string::npos);
    return;
  }
  FUZZ_CHECK(!hosts.empty() && hosts.size() <= std::size_t{max_ranks});
  for (const launch::HostSlots& host : hosts) {
    check_name(host.name);
    FUZZ_CHECK(host.slots >= 0 && host.slots <= max_ranks);
  }
  const char separator = is_file ? '\n' : ',';
  const std::string plain = written(hosts, separator);
  Hosts again;
  FUZZ_CHECK(parse(is_file, plain, &again).ok() && written(again, separator) == plain);
}

}  // namespace
}  // namespace hocket::internal
