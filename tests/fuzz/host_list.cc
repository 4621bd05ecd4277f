// Slurm's list of hosts.
#include "bootstrap/launchers/host_list.h"

#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

constexpr std::size_t most = 100;

FUZZ_TARGET(host_list, input) {
  const std::string_view text = input.text();
  std::vector<std::string> hosts;
  if (!expand_host_list(text, most, &hosts).ok()) return;
  FUZZ_CHECK(!hosts.empty() && hosts.size() <= most);
  std::string plain;
  for (const std::string& host : hosts) {
    FUZZ_CHECK(!host.empty() && host.find_first_of("[],") == std::string::npos);
    FUZZ_CHECK(host.size() <= text.size() + 10);
    plain += (plain.empty() ? "" : ",") + host;
  }
  std::vector<std::string> again;
  FUZZ_CHECK(expand_host_list(plain, most, &again).ok() && again == hosts);
  // No list and no bracket ends with a comma.
  FUZZ_CHECK(text.back() != ',' && text.find(",]") == std::string_view::npos);
}

}  // namespace
}  // namespace hocket::internal
