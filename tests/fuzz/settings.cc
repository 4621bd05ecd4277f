// An environment, a variable on each line: the settings of hocket, and the rank that the variables
// of a launcher give a process.
#include "base/settings.h"

#include "bootstrap/launchers/launched_rank.h"
#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

void check_settings(const char* const* environment) {
  Settings settings;
  const Status status = read_settings(environment, &settings);
  if (!status.ok()) {
    FUZZ_CHECK(status.code() == Code::invalid_argument);
    FUZZ_CHECK(status.message().find("HOCKET_") != std::string::npos);
    return;
  }
  FUZZ_CHECK(settings.deadline_ms.value_or(1) >= 1 && settings.join_deadline_ms.value_or(1) >= 1);
  FUZZ_CHECK(settings.silence_ms.value_or(100) >= 100);
  FUZZ_CHECK(settings.record_operations.value_or(0) >= 0);
  FUZZ_CHECK(settings.launch_fd.value_or(3) >= 3);
  FUZZ_CHECK(settings.use_shm || settings.use_tcp);
  FUZZ_CHECK(std::ranges::all_of(settings.nodes, [](int ranks) { return ranks >= 1; }));
  for (const std::string& name : settings.unknown) {
    FUZZ_CHECK(name.starts_with("HOCKET_") && !set_by_launcher(name));
    FUZZ_CHECK(unknown_setting_text(name).starts_with(name));
  }
}

void check_launched_rank(const char* const* environment) {
  LaunchedRank launched;
  bool found = false;
  const auto no_socket = [](int) { return false; };
  const Status status = find_launched_rank(Environment(environment), no_socket, &launched, &found);
  if (!status.ok() || !found) return;
  FUZZ_CHECK(!launched.launcher.empty() && !launched.variables.empty());
  FUZZ_CHECK(launched.rank >= -1 && launched.ranks >= 0);
  FUZZ_CHECK(launched.ranks == 0 || launched.rank < launched.ranks);
  if (launched.exchange != Exchange::derived) return;
  FUZZ_CHECK(launched.rank >= 0 && launched.ranks >= 1);
  FUZZ_CHECK(!launched.job.empty());
}

FUZZ_TARGET(settings, input) {
  std::vector<std::string> entries(1);
  for (const char c : input.text()) {
    if (c == '\n') {
      entries.emplace_back();
    } else if (c != 0) {
      entries.back() += c;
    }
  }
  std::vector<const char*> environment;
  for (const std::string& entry : entries) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  check_settings(environment.data());
  check_launched_rank(environment.data());
}

}  // namespace
}  // namespace hocket::internal
